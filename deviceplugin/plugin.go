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

// Plugin keeps a node registered with its kubelet.
type Plugin struct {
	Directory string // of the kubelet's device plugins
	Resource  string
	Node      Node
	Log       *slog.Logger
	// Registered is called when the kubelet has begun (true) or ceased (false) to watch.
	Registered func(bool)
}

// How often registration is tried while the kubelet is away, and how long it has to begin to watch. A kubelet that restarts
// fails the pods that are bound but not running yet unless the plugin is back when it looks at them, so the pause is short.
const (
	retryEvery = 100 * time.Millisecond
	watchSoon  = 10 * time.Second
)

// kubeletSocket is where a kubelet takes registrations.
const kubeletSocket = "kubelet.sock"

// Run serves and registers until the context ends, again and again: the stream on which the kubelet watches ends with every
// kubelet, and nothing else tells so surely.
func (p *Plugin) Run(ctx context.Context) {
	said := ""
	for ctx.Err() == nil {
		err := p.serve(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != said {
			p.Log.Warn("not registered with the kubelet", "err", err) // once, not ten times a second
			said = err.Error()
		}
		if err == nil {
			said = ""
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryEvery):
		}
	}
}

// serve is one registration, from a new socket to the end of the kubelet's watch. Each has a socket of its own: the kubelet
// may not have noticed yet that an earlier one is dead, and takes none twice.
func (p *Plugin) serve(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(p.Directory, kubeletSocket)); err != nil {
		return fmt.Errorf("the kubelet is not there: %w", err)
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
	if err := await(listed, service.watching, watchSoon); err != nil {
		return err
	}
	forget()
	p.Log.Info("registered with the kubelet", "resource", p.Resource)
	p.Registered(true)
	defer p.Registered(false)
	select {
	case <-ctx.Done():
	case <-service.lost:
	}
	return nil
}

var errSwept = errors.New("the kubelet has emptied its directory of device plugins")

// whileListed is a context that ends when the socket is no longer in the directory. A kubelet that starts empties it: one that
// was registered with after that, with a socket from before, would dial for ten seconds what is gone.
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

func await(ctx context.Context, c <-chan struct{}, patience time.Duration) error {
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		return errors.New("the kubelet has registered the plugin but does not watch it")
	}
}

func (p *Plugin) register(ctx context.Context, name string) error {
	conn, err := grpc.NewClient("unix://"+filepath.Join(p.Directory, kubeletSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, watchSoon)
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

// Sweep removes the sockets that killed agents left. Nobody else may be registering.
func (p *Plugin) Sweep() error {
	left, err := filepath.Glob(filepath.Join(p.Directory, "gshare-*.sock"))
	for _, socket := range left {
		err = errors.Join(err, os.Remove(socket))
	}
	return err
}
