package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gshare-dev/gshare/test/executable"
)

// stopGrace is how long Stop waits after SIGTERM before it kills the process.
const stopGrace = 5 * time.Second

// Program describes a program to start on a machine.
type Program struct {
	Name string // unique on the machine
	Path string
	Args []string
	Env  []string // added to the caller's
	// Ready returns nil once the program serves. If Ready is nil, the program counts as ready at once.
	Ready func(context.Context) error
}

// Process is a program that was started on a machine and may be restarted. Its methods may be called from any goroutine.
type Process struct {
	LogFile string // of all its runs

	machine *Machine
	program Program

	mu  sync.Mutex // guards run
	run *execution
}

// execution is one execution of a program, from its start to its end.
type execution struct {
	command       *exec.Cmd
	stopRequested atomic.Bool // by Kill, Stop or Halt
	done          chan struct{}
	err           error // set before done is closed
}

func (p *Process) String() string { return p.program.Name + " on " + p.machine.Name }

func (p *Process) current() *execution {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

func (p *Process) setStopRequested() { p.current().stopRequested.Store(true) }

// PID returns the process ID as the caller sees it. After Done is closed, it may belong to another process.
func (p *Process) PID() int { return p.current().command.Process.Pid }

// Done returns a channel that is closed when the process has ended and been reaped.
func (p *Process) Done() <-chan struct{} { return p.current().done }

// Err returns how the process ended. It returns nil while the process runs, and if it was stopped on purpose.
func (p *Process) Err() error {
	r := p.current()
	select {
	case <-r.done:
		return r.err
	default:
		return nil
	}
}

// Kill sends SIGKILL to the process, but not to its children, and waits until it has ended.
func (p *Process) Kill() {
	p.setStopRequested()
	_ = p.Signal(syscall.SIGKILL) // fails only if the process has already ended
	<-p.Done()
}

// Stop sends SIGTERM to the process, waits until it has ended, and kills it after a few seconds.
func (p *Process) Stop() {
	p.setStopRequested()
	_ = p.Signal(syscall.SIGTERM) // fails only if the process has already ended
	select {
	case <-p.Done():
	case <-time.After(stopGrace):
		p.Kill()
	}
}

// Signal sends a signal to the process, but not to its children.
func (p *Process) Signal(signal syscall.Signal) error {
	return p.current().command.Process.Signal(signal)
}

const readyInterval = 50 * time.Millisecond

// Start starts a program and waits until it is ready. ctx limits the wait, not the life of the program.
func (m *Machine) Start(ctx context.Context, program Program) (*Process, error) {
	p := &Process{
		machine: m, program: program,
		LogFile: filepath.Join(m.Logs, m.Name+"-"+program.Name+".log"),
	}
	if err := p.start(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

// Restart starts the program again after it has ended, and waits until it is ready.
func (p *Process) Restart(ctx context.Context) error {
	select {
	case <-p.Done():
		return p.start(ctx)
	default:
		return fmt.Errorf("restart %s: it is running", p)
	}
}

func (p *Process) start(ctx context.Context) error {
	if err := p.launch(); err != nil {
		return fmt.Errorf("start %s: %w", p, err)
	}
	if err := p.waitReady(ctx); err != nil {
		p.Kill()
		return fmt.Errorf("start %s: %w; end of %s:\n%s", p, err, p.LogFile, executable.LogTail(p.LogFile))
	}
	return nil
}

func (p *Process) launch() error {
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command(p.program.Path, p.program.Args...)
	command.Dir = "/"
	command.Env = append(os.Environ(), p.program.Env...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that Ctrl-C reaches only this process
	if err := p.machine.runInNamespaces(namespaces, command.Start); err != nil {
		return err
	}
	r := &execution{command: command, done: make(chan struct{})}
	go r.wait()
	p.mu.Lock()
	p.run = r
	p.mu.Unlock()
	p.machine.registerProcess(p)
	return nil
}

func (m *Machine) registerProcess(p *Process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.processes, p) {
		m.processes = append(m.processes, p)
	}
}

func (r *execution) wait() {
	defer close(r.done)
	err := r.command.Wait()
	if r.stopRequested.Load() {
		return
	}
	if err == nil {
		err = errors.New("exit status 0")
	}
	r.err = err
}

func (p *Process) waitReady(ctx context.Context) error {
	if p.program.Ready == nil {
		return nil
	}
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	for {
		last := p.program.Ready(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-p.Done():
			return fmt.Errorf("ended before it was ready: %w", p.Err())
		case <-ctx.Done():
			return fmt.Errorf("%w; %w", ctx.Err(), last)
		case <-tick.C:
		}
	}
}
