package main

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/gateway/kubernetes"
	"github.com/gshare-dev/gshare/serving/gateway/peers"
	"github.com/gshare-dev/gshare/serving/identity"
)

// gateways holds the connections to the other gateways of the cluster, and the port that this gateway listens on for them.
type gateways struct {
	peers    *peers.Peers // nil, as listener and files are, if this gateway serves alone
	listener net.Listener
	files    *identity.Files
	watch    watch
}

// watch is a watch of objects.
type watch interface {
	Run(ctx context.Context) error
	WaitForSync(ctx context.Context) bool
}

// noWatch is the watch of a gateway that has no others.
type noWatch struct{}

func (noWatch) Run(context.Context) error        { return nil }
func (noWatch) WaitForSync(context.Context) bool { return true }

// newGateways listens on the port for other gateways, which must have the same certificate as this one. Without --tls it does not listen, and
// this gateway serves alone, because it could not tell who sends a request.
func (o *options) newGateways(ctx context.Context, config *rest.Config, log *slog.Logger) (*gateways, error) {
	if o.tls == "" {
		log.Warn("serve without other gateways, since --tls is empty")
		return &gateways{watch: noWatch{}}, nil
	}
	listeners, err := listen(ctx, "--peers", o.peers)
	if err != nil {
		return nil, cli.Usage(err)
	}
	g := &gateways{listener: listeners[0], files: identity.NewFiles(o.tls), watch: noWatch{}}
	g.peers = peers.New(podName(), peers.NewTransport(g.files.ToPeers()), log)
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		return g, nil
	}
	port := g.listener.Addr().(*net.TCPAddr).Port
	g.watch, err = kubernetes.NewGateways(config, namespace, o.peerSelector, port, g.peers.Set, log)
	return g, err
}

// tls returns the configuration of connections to other gateways, or nil if this gateway serves alone.
func (g *gateways) tls() *tls.Config {
	if g.files == nil {
		return nil
	}
	return g.files.ToPeers()
}

// leave makes this gateway give up all functions that it owns.
func (g *gateways) leave() {
	if g.peers != nil {
		g.peers.Leave()
	}
}

// serve answers requests that other gateways forward, until ctx ends and all accepted requests are answered.
func (g *gateways) serve(ctx context.Context, serves *gateway.Gateway, grace time.Duration, log *slog.Logger) error {
	if g.listener == nil {
		return nil
	}
	return newServer(serves.PeerServer(g.files.FromPeers()), grace, log).serveTLS(ctx, g.listener)
}
