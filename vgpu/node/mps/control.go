package mps

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// commandLimit is how long a daemon may take for an answer; one that takes longer is silent.
const commandLimit = 2 * time.Second

// control gives commands to the daemon of one slice.
type control struct {
	Daemons
	slice      string
	namespaces bool // it has them: it is one of MPS v3
}

// command gives one command to a daemon of MPS v2 and gives the answer.
func (c control) command(ctx context.Context, text string) (string, error) {
	return c.exec(ctx, text+"\n")
}

// start starts the daemon. As root, one server serves the clients of all users: otherwise those of a second user would wait,
// without an error, until the last process of the first has ended, and pods of several users could not share.
func (c control) start(ctx context.Context) error {
	for _, dir := range []string{c.Pipe(c.slice), c.log(c.slice)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	arguments, multiuser := []string{"-d"}, "-multiuser-server"
	if c.namespaces {
		arguments, multiuser = append(arguments, version3...), "-m"
	}
	if os.Geteuid() == 0 {
		arguments = append(arguments, multiuser)
	}
	if err := c.remember(); err != nil {
		return err
	}
	if _, err := c.exec(ctx, "", arguments...); err != nil {
		return err
	}
	return c.setApart()
}

// setApart keeps the daemon from ending with the container that the agent runs in, and its clients with it: a runtime kills all
// that is in a container's cgroup. It has no servers yet, and they will be where it is.
func (c control) setApart() (all error) {
	daemons, _ := c.processes()
	for _, pid := range daemons {
		all = errors.Join(all, c.Apart.Enter(pid))
	}
	return all
}

func (c control) exec(ctx context.Context, input string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program(), arguments...)
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+c.slice,
		pipeVariable+c.Pipe(c.slice), "CUDA_MPS_LOG_DIRECTORY="+c.log(c.slice))
	cmd.Stdin = strings.NewReader(input)
	cmd.WaitDelay = 100 * time.Millisecond // what it leaves behind may hold its output open
	out, err := cmd.CombinedOutput()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = errSilent
	}
	if err != nil {
		return "", fmt.Errorf("MPS of slice %s: %w: %.200s", c.slice, err, bytes.TrimSpace(out))
	}
	return string(out), nil
}

var errSilent = errors.New("it does not answer")

const pipeVariable = "CUDA_MPS_PIPE_DIRECTORY="
