package deviceplugin

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Plugin registers a device plugin with the kubelet and serves its calls.
type Plugin struct {
	Directory string // of the kubelet's device plugins
	Resource  string
	Node      Node
	Log       *slog.Logger
	// Registered is called with true when the kubelet has begun to watch, and with false when it has ceased to.
	Registered func(bool)
}

// retryEvery is the pause between registrations while the kubelet is away, and watchTimeout how long it may take to begin to watch. A
// kubelet that restarts fails pods that are bound but not running unless the plugin is registered by then, so the pause is short.
const (
	retryEvery   = 100 * time.Millisecond
	watchTimeout = 10 * time.Second
)

// kubeletSocket is the name of the socket on which the kubelet accepts registrations.
const kubeletSocket = "kubelet.sock"

// Run registers with the kubelet and serves its calls until the context ends. It registers again whenever the kubelet's ListAndWatch call
// ends, which is the only reliable sign that the kubelet has restarted.
func (p *Plugin) Run(ctx context.Context) {
	logged := ""
	for ctx.Err() == nil {
		err := p.serve(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != logged {
			p.Log.Warn("failed to register with the kubelet", "error", err) // once for each error
			logged = err.Error()
		}
		if err == nil {
			logged = ""
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryEvery):
		}
	}
}

// serve registers once and serves until the kubelet stops watching or the context ends. It uses a new socket each time, since the kubelet
// refuses one to which it believes to be connected.
func (p *Plugin) serve(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(p.Directory, kubeletSocket)); err != nil {
		return fmt.Errorf("find socket of kubelet: %w", err)
	}
	name := "gshare-" + strings.ToLower(rand.Text()[:8]) + ".sock"
	listener, err := net.Listen("unix", filepath.Join(p.Directory, name))
	if err != nil {
		return err
	}
	service := newService(p.Node)
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, service)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop() // removes the socket
		<-served
	}()
	listed, forget := p.whileListed(ctx, name)
	defer forget()
	if err := p.register(listed, name); err != nil {
		return err
	}
	if err := await(listed, service.watching, watchTimeout); err != nil {
		return err
	}
	forget()
	p.Log.Info("registered with kubelet", "resource", p.Resource)
	p.Registered(true)
	defer p.Registered(false)
	select {
	case <-ctx.Done():
	case <-service.lost:
	}
	return nil
}

var errSwept = errors.New("the kubelet has removed the socket of the plugin")

// whileListed returns a context that ends when the named socket is deleted. A kubelet that starts deletes all sockets of plugins; one that
// is told of a deleted socket would try for ten seconds to connect to it.
func (p *Plugin) whileListed(ctx context.Context, name string) (context.Context, context.CancelFunc) {
	listed, end := context.WithCancelCause(ctx)
	socket := filepath.Join(p.Directory, name)
	go func() {
		look := time.NewTicker(retryEvery)
		defer look.Stop()
		for listed.Err() == nil {
			if _, err := os.Stat(socket); err != nil {
				end(errSwept)
			}
			select {
			case <-listed.Done():
			case <-look.C:
			}
		}
	}()
	return listed, func() { end(context.Canceled) }
}

// await blocks until the channel receives, which means that the kubelet watches the plugin. It returns an error if the context ends or the
// patience is over.
func await(ctx context.Context, c <-chan struct{}, patience time.Duration) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		return errors.New("the kubelet registered the plugin but does not watch it")
	}
}

func (p *Plugin) register(ctx context.Context, name string) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(p.Directory, kubeletSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	_, err = api.NewRegistrationClient(conn).Register(ctx, &api.RegisterRequest{
		Version: api.Version, Endpoint: name, ResourceName: p.Resource,
		Options: &api.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true},
	})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Sweep removes the sockets that earlier agents have left. It must not run during a registration.
func (p *Plugin) Sweep() error {
	left, err := filepath.Glob(filepath.Join(p.Directory, "gshare-*.sock"))
	for _, socket := range left {
		err = errors.Join(err, os.Remove(socket))
	}
	return err
}
