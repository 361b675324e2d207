package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// demo is a run of this program.
type demo struct {
	bin, dir string
	length   time.Duration // duration of each load
}

// patience is how long a program may take to end after SIGTERM before it is killed.
const patience = 15 * time.Second

// command returns a command of the demo's programs. It runs in a process group of its own, so that Ctrl-C reaches only this program, which then
// ends the others in order.
func (d *demo) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(d.bin, name), args...)
	cmd.Env = append(os.Environ(), "PATH="+d.bin+":"+os.Getenv("PATH"), "LD_LIBRARY_PATH="+filepath.Join(d.bin, "fake"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// program is a program that runs in the background.
type program struct {
	*exec.Cmd
	ended chan struct{} // closed when its standard error has ended

	mu  sync.Mutex // guards log
	log strings.Builder
}

// start starts a program and waits until its standard error has a line with the text.
func (d *demo) start(ctx context.Context, text, name string, args ...string) (*program, error) {
	p := &program{Cmd: d.command(name, args...), ended: make(chan struct{})}
	stderr, err := p.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.Start(); err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	go func() {
		defer close(p.ended)
		for lines, found := bufio.NewScanner(stderr), false; lines.Scan(); {
			p.mu.Lock()
			fmt.Fprintln(&p.log, lines.Text())
			p.mu.Unlock()
			if !found && strings.Contains(lines.Text(), text) {
				found = true
				close(ready)
			}
		}
	}()
	select {
	case <-ready:
		return p, nil
	case <-p.ended:
		err = fmt.Errorf("%s has ended: %s", name, p.text())
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, errors.Join(err, p.stop())
}

func (p *program) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// find returns what the first group of the expression matches in the log, or an empty string.
func (p *program) find(expression string) string {
	if found := regexp.MustCompile(expression).FindStringSubmatch(p.text()); found != nil {
		return found[1]
	}
	return ""
}

// stop ends the program by SIGTERM, or by SIGKILL after a while.
func (p *program) stop() error {
	_ = p.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(patience, func() { _ = p.Process.Kill() })
	defer kill.Stop()
	<-p.ended
	if err := p.Wait(); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(p.Path), err)
	}
	return nil
}

// output runs a program and returns what it prints. It ends the program when ctx ends.
func (d *demo) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := d.command(name, args...)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	if err := cmd.Wait(); err != nil {
		return nil, errors.Join(ctx.Err(), fmt.Errorf("%s %s: %w: %s", name, args[0], err, problems.String()))
	}
	return out.Bytes(), nil
}
