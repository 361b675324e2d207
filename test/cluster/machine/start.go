package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/gshare-dev/gshare/test/executable"
)

const readyInterval = 50 * time.Millisecond

// Start runs the program and returns when it is ready. ctx bounds that, not the program's life.
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

// Restart runs the program again, after its end, and returns when it is ready.
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
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C reaches only the maker
	if err := p.machine.inside(namespaces, command.Start); err != nil {
		return err
	}
	r := &run{command: command, done: make(chan struct{})}
	go r.wait()
	p.mu.Lock()
	p.run = r
	p.mu.Unlock()
	p.machine.add(p)
	return nil
}

// add lets Halt know of the process.
func (m *Machine) add(p *Process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Contains(m.processes, p) {
		m.processes = append(m.processes, p)
	}
}

func (r *run) wait() {
	defer close(r.done)
	err := r.command.Wait()
	if r.asked.Load() {
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
