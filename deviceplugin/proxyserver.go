package deviceplugin

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// protocol is the version of the protocol between Proxy and ProxyServer: the kubelet's device plugin API v1beta1 on a Unix socket, with the
// metadata below. Each side refuses other versions. It is a variable so that a test can build programs of another version.
var protocol = "1"

// Metadata of the calls.
const (
	protocolKey = "gshare-proxy-protocol" // on every call: the version
	watchedKey  = "gshare-proxy-watched"  // on ListAndWatch: present if the kubelet watches the proxy
)

// Names of files in the directory that proxies and the agent share.
const (
	agentSocket = "agent.sock"
	servingLock = "serving.lock" // locked by each proxy that is registered with the kubelet, or is about to be
)

// ProxyServer serves the calls of proxies on a Unix socket. It belongs to the agent.
type ProxyServer struct {
	Directory  string // created if missing, accessible only to its owner
	Node       Node
	Log        *slog.Logger
	Registered func(bool) // called with true when the kubelet begins to watch a proxy, and with false when that proxy is lost
	Lost       func()     // called when a proxy is lost: it may have answered an Allocate without telling the agent

	mu      sync.Mutex // guards the following
	proxies int        // number of connected proxies
	changed chan struct{}
}

// Listen opens the socket.
func (s *ProxyServer) Listen() (net.Listener, error) {
	if err := makePrivate(s.Directory); err != nil {
		return nil, err
	}
	name := filepath.Join(s.Directory, agentSocket)
	if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.Listen("unix", name)
	if err != nil {
		return nil, err
	}
	return listener, os.Chmod(name, 0o600)
}

// Serve answers proxies until the context ends.
func (s *ProxyServer) Serve(ctx context.Context, listener net.Listener) {
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
			if err := s.checkProtocol(ctx); err != nil {
				return nil, err
			}
			return handle(ctx, request)
		}, logCalls(s.Log)),
		grpc.StreamInterceptor(func(service any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
			if err := s.checkProtocol(stream.Context()); err != nil {
				return err
			}
			return handle(service, stream)
		}))
	api.RegisterDevicePluginServer(server, proxyService{newService(s.Node), s})
	defer context.AfterFunc(ctx, server.Stop)()
	if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		s.Log.Error("failed to serve the proxy", "error", err)
	}
}

// checkProtocol returns an error unless the caller speaks the protocol.
func (s *ProxyServer) checkProtocol(ctx context.Context) error {
	got := first(ctx, protocolKey)
	if got == protocol {
		return nil
	}
	s.Log.Warn("refused a proxy of another protocol; the agent registers itself with the kubelet", "protocol", got, "supported", protocol)
	return status.Errorf(codes.FailedPrecondition,
		"the agent supports version %s of the proxy's protocol, not %.20q: run proxy and agent of one release", protocol, got)
}

// first returns the first value of a key of the caller's metadata; empty if there is none.
func first(ctx context.Context, key string) string {
	if values := metadata.ValueFromIncomingContext(ctx, key); len(values) > 0 {
		return values[0]
	}
	return ""
}

// WaitAbsent blocks until no proxy serves the kubelet, or the context ends.
func (s *ProxyServer) WaitAbsent(ctx context.Context) {
	for ctx.Err() == nil {
		connected, changed := s.connections()
		look := time.After(absentPeriod)
		if connected {
			look = nil // the death of a proxy changes the number of connections
		} else if lock, err := flock(filepath.Join(s.Directory, servingLock), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			lock.Close()
			return
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-look:
		}
	}
}

// Connected reports whether a proxy is connected.
func (s *ProxyServer) Connected() bool {
	connected, _ := s.connections()
	return connected
}

// absentPeriod is the pause between two checks for a proxy that is not connected yet, or is ending.
const absentPeriod = 5 * time.Millisecond

func (s *ProxyServer) connections() (connected bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.proxies > 0, s.changed
}

func (s *ProxyServer) countProxies(change int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proxies += change
	if s.changed != nil {
		close(s.changed)
	}
	s.changed = make(chan struct{})
}

// proxyService serves the calls of proxies.
type proxyService struct {
	*service
	server *ProxyServer
}

// ListAndWatch sends the device IDs to a proxy. The proxy is connected for as long as the call lasts.
func (f proxyService) ListAndWatch(r *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	f.server.countProxies(1)
	defer f.server.countProxies(-1)
	defer f.server.Lost()
	if first(stream.Context(), watchedKey) != "" {
		f.server.Registered(true)
		defer f.server.Registered(false)
	}
	return f.service.ListAndWatch(r, stream)
}
