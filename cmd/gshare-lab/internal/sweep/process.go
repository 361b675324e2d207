package sweep

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// network is the Python program that runs the model. It is passed to Python as an argument.
//
//go:embed network.py
var network string

// program is the running program of a model.
type program struct {
	cmd    *exec.Cmd
	ask    io.WriteCloser
	answer *bufio.Reader
	period time.Duration
}

// start starts the model and waits until it is ready.
func (o *options) start(ctx context.Context, args []string) (*program, error) {
	if len(args) == 0 {
		if out, err := exec.CommandContext(ctx, o.python, "-c", "import torch").CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s cannot import torch, which Debian has as python3-torch: %w\n%s", o.python, err, out)
		}
		args = []string{o.python, "-c", network}
	}
	p := &program{cmd: exec.CommandContext(ctx, args[0], args[1:]...), period: time.Duration(o.period) * time.Millisecond}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	p.ask, p.answer = in, bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if line, err := p.answer.ReadString('\n'); err != nil || line != "ready\n" {
		p.close()
		return nil, fmt.Errorf("the model's program: %q, want \"ready\": %w", line, errors.Join(err, io.ErrUnexpectedEOF))
	}
	return p, nil
}

// close ends the program.
func (p *program) close() {
	_ = p.cmd.Process.Kill() // it may have ended
	_ = p.cmd.Wait()
}

// warmUps is the number of executions before those that count.
const warmUps = 3

// measure implements the function type measure: the program runs the model, limited to the vCPUs.
func (p *program) measure(ctx context.Context, c profile.MilliCPU, batch, executions int) ([]time.Duration, error) {
	held, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.hold(held, c) }()
	all, err := p.execute(batch, executions)
	stop()
	return all, errors.Join(err, <-ended, ctx.Err())
}

func (p *program) execute(batch, executions int) (all []time.Duration, err error) {
	for n := range warmUps + executions {
		begin := time.Now()
		if _, err := fmt.Fprintln(p.ask, batch); err != nil {
			return nil, err
		}
		if _, err := p.answer.ReadString('\n'); err != nil {
			return nil, fmt.Errorf("the model's program has ended: %w", err)
		}
		if n >= warmUps {
			all = append(all, time.Since(begin))
		}
	}
	return all, nil
}

// look is the interval at which hold reads the processor time that the program has used. The program may overrun its part of a period by as
// much, and pays for that in the next period.
const look = 500 * time.Microsecond

// hold limits the program to its part of each period, until ctx ends. It does what a CPU limit of the kernel does, for machines on which none
// can be set.
func (p *program) hold(ctx context.Context, c profile.MilliCPU) error {
	defer p.signal(syscall.SIGCONT)
	own := p.period * time.Duration(c) / 1000
	used, err := p.used()
	if err != nil {
		return err
	}
	for limit, end := used+own, time.Now().Add(p.period); ctx.Err() == nil; {
		now, err := p.used()
		if err != nil {
			return err
		}
		if now >= limit {
			p.signal(syscall.SIGSTOP)
			time.Sleep(time.Until(end))
			p.signal(syscall.SIGCONT)
		} else {
			time.Sleep(min(look, time.Until(end)))
		}
		if left := time.Until(end); left <= 0 {
			limit, end = min(limit, now)+own, end.Add(p.period) // time left over expires; an overrun is deducted
		}
	}
	return nil
}

func (p *program) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) } // it may have ended

// used returns the processor time that the program has used.
func (p *program) used() (time.Duration, error) {
	var t unix.Timespec
	const clock = 2 // CPUCLOCK_SCHED, of a process: clock_getcpuclockid(3)
	if err := unix.ClockGettime(int32(^p.cmd.Process.Pid<<3|clock), &t); err != nil {
		return 0, fmt.Errorf("processor time of the model's program: %w", err)
	}
	return time.Duration(t.Nano()), nil
}
