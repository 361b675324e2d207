package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gshare-dev/gshare/test/executable"
)

// stopGrace is how long Stop waits after SIGTERM for a child to end before it kills it.
const stopGrace = 5 * time.Second

// Process is a child process of a control plane: the API server with etcd, or a scheduler. Its methods may be called from any goroutine.
type Process struct {
	Name    string
	URL     string // https, on the loopback address
	LogFile string

	command  *exec.Cmd
	stdin    io.Closer // closing it ends the child
	client   *http.Client
	stopping atomic.Bool // whether Stop or Kill was called
	done     chan struct{}
	err      error // set before done is closed
}

// launch starts the child program in the folder, in the given role, and appends its output to p.LogFile. The child has its own process
// group, so that Ctrl-C reaches only the parent, which then ends its children in order.
func (p *Process) launch(folder, role string, args []string) error {
	program, err := childProgram()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(p.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	p.command = exec.Command(program, append([]string{ChildArgument, role}, args...)...)
	p.command.Dir, p.command.Stdout, p.command.Stderr = folder, log, log
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	if err := p.command.Start(); err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	p.done = make(chan struct{})
	go p.wait()
	return nil
}

// wait reaps the child, which also closes the pipe, and records how the child ended.
func (p *Process) wait() {
	defer close(p.done)
	err := p.command.Wait()
	switch {
	case p.stopping.Load():
	case err == nil:
		p.err = fmt.Errorf("%s ended", p.Name)
	default:
		p.err = fmt.Errorf("%s ended: %w; end of %s:\n%s", p.Name, err, p.LogFile, executable.LogTail(p.LogFile))
	}
}

// PID returns the process ID of the child. Once Done is closed, it may belong to another process.
func (p *Process) PID() int { return p.command.Process.Pid }

// Done returns a channel that is closed when the child has ended and has been reaped.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns how the child ended. It returns nil while the child runs, and if it ended because Stop or Kill was called.
func (p *Process) Err() error {
	select {
	case <-p.done:
		return p.err
	default:
		return nil
	}
}

// Kill sends SIGKILL to the child and waits until it has ended.
func (p *Process) Kill() {
	p.stopping.Store(true)
	_ = p.command.Process.Kill() // fails only if the process has already ended
	<-p.done
}

// Stop sends SIGTERM to the child and waits until it has ended. It kills the child after a few seconds.
func (p *Process) Stop() {
	p.stopping.Store(true)
	_ = p.command.Process.Signal(syscall.SIGTERM) // fails only if the process has already ended
	select {
	case <-p.done:
	case <-time.After(stopGrace):
		p.Kill()
	}
}

// Get requests a path such as /metrics, /readyz or /debug/pprof/heap from the child's server as Admin, and returns the body. Any status but
// 200 is an error.
func (p *Process) Get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+path, nil)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	response, err := p.client.Do(request)
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err != nil {
		return nil, fmt.Errorf("get %s: %w", path, err)
	}
	return body, nil
}

// The command line and files that this package and package program agree on. A child's command line is: program ChildArgument role flags...
const (
	ChildArgument = "__gshare-child"
	RoleServer    = "kube-apiserver"
	RoleScheduler = "kube-scheduler"

	// EtcdURL is a socket relative to the state directory, which is the child's working directory. So there is no port to clash with, no limit
	// on the length of the directory's path, and no access for other users of the machine.
	EtcdURL = "unix://etcd.sock"

	// LogFolder is the folder of logs in the state directory.
	LogFolder = "logs"
)

// Hyperkube is the environment variable with the path of the program that children run. Without it, hyperkube is built if it is out of
// date.
const Hyperkube = "GSHARE_HYPERKUBE"

var ownProgram bool

// UseOwnProgram makes the calling binary the program of all child processes. Package program calls it.
func UseOwnProgram() { ownProgram = true }

// childProgram returns the path of the program that child processes run.
func childProgram() (string, error) {
	if ownProgram {
		return os.Executable()
	}
	return hyperkube()
}

// hyperkube returns the path of the program hyperkube. It builds the program first, unless the environment names one.
var hyperkube = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(Hyperkube); path != "" {
		_, err := os.Stat(path) // go test reruns a cached test when a file changes that the test has looked at
		return path, err
	}
	folder, err := executable.Build("hyperkube")
	return filepath.Join(folder, "hyperkube"), err
})
