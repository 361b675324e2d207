package machine

import (
	"context"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// stopGrace is how long a process may take to end by itself after SIGTERM.
const stopGrace = 5 * time.Second

// Program is what to run on a machine.
type Program struct {
	Name string // unique on the machine
	Path string
	Args []string
	Env  []string // added to the caller's
	// Ready returns nil when the program serves. Nil means at once.
	Ready func(context.Context) error
}

// Process is a program that runs, or ran, on a machine. Its methods may be called from any goroutine.
type Process struct {
	LogFile string // of all its runs

	machine *Machine
	program Program

	mu  sync.Mutex // guards run
	run *run
}

// run is one life of a process.
type run struct {
	command *exec.Cmd
	asked   atomic.Bool // somebody wanted it to end
	done    chan struct{}
	err     error // set before done is closed
}

func (p *Process) String() string { return p.program.Name + " on " + p.machine.Name }

func (p *Process) current() *run {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.run
}

func (p *Process) expectEnd() { p.current().asked.Store(true) }

// PID returns the process id as the caller sees it; after Done it may belong to another process.
func (p *Process) PID() int { return p.current().command.Process.Pid }

// Done is closed when the process has ended and has been reaped.
func (p *Process) Done() <-chan struct{} { return p.current().done }

// Err is nil while the process runs and if it was stopped on purpose; otherwise it is how the process ended.
func (p *Process) Err() error {
	r := p.current()
	select {
	case <-r.done:
		return r.err
	default:
		return nil
	}
}

// Kill ends the process at once (SIGKILL), without its children, and waits for its end.
func (p *Process) Kill() {
	p.expectEnd()
	_ = p.Signal(syscall.SIGKILL) // fails only if it has ended
	<-p.Done()
}

// Stop asks the process to end (SIGTERM), waits, and kills it after a few seconds.
func (p *Process) Stop() {
	p.expectEnd()
	_ = p.Signal(syscall.SIGTERM) // fails only if it has ended
	select {
	case <-p.Done():
	case <-time.After(stopGrace):
		p.Kill()
	}
}

// Signal sends a signal to the process.
func (p *Process) Signal(signal syscall.Signal) error {
	return p.current().command.Process.Signal(signal)
}
