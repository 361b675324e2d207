package controlplane

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/test/executable"
)

const (
	loopback      = "127.0.0.1"
	readyInterval = 50 * time.Millisecond
	portAttempts  = 3
)

// child is what to start: args gets the port that the child shall serve on.
type child struct {
	name, role string
	args       func(port int) []string
}

// start runs the child until its /readyz says ok. A port that is free when chosen can be taken
// before the child listens on it; then another one is tried.
func (c *ControlPlane) start(ctx context.Context, what child) (*Process, error) {
	var p *Process
	var err error
	for range portAttempts {
		if p, err = c.startOnce(ctx, what); err == nil || !strings.Contains(err.Error(), "address already in use") {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", what.name, err)
	}
	return p, nil
}

func (c *ControlPlane) startOnce(ctx context.Context, what child) (*Process, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	p := &Process{
		Name:    what.name,
		URL:     fmt.Sprintf("https://%s:%d", loopback, port),
		LogFile: filepath.Join(c.dir, LogFolder, what.name+".log"),
	}
	if p.client, err = rest.HTTPClientFor(c.credentials.Config(p.URL, c.credentials.Token(access.Admin))); err != nil {
		return nil, err
	}
	if err := p.launch(c.dir, what.role, what.args(port)); err != nil {
		return nil, err
	}
	if err := p.waitReady(ctx); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

func (p *Process) waitReady(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, readyInterval, true, func(ctx context.Context) (bool, error) {
		_, last = p.Get(ctx, "/readyz")
		return last == nil, p.Err()
	})
	if err == nil || p.Err() != nil {
		return err
	}
	return fmt.Errorf("%w; %w; end of %s:\n%s", err, last, p.LogFile, executable.LogTail(p.LogFile))
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, fmt.Errorf("find free port: %w", err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	return port, listener.Close()
}
