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

// gateways are the other gateways, and the port for them.
type gateways struct {
	peers    *peers.Peers // nil if this gateway serves alone, and so are listener and files
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

// newGateways listens on the port for other gateways, which are to have the certificate of this one. Without --tls, it does not, and has no others:
// who sends a request could not be told.
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

// tls is for connections to other gateways.
func (g *gateways) tls() *tls.Config {
	if g.files == nil {
		return nil
	}
	return g.files.ToPeers()
}

// leave lets this gateway own no functions any more.
func (g *gateways) leave() {
	if g.peers != nil {
		g.peers.Leave()
	}
}

// serve serves what other gateways forward, until ctx ends and what is accepted is answered.
func (g *gateways) serve(ctx context.Context, serves *gateway.Gateway, grace time.Duration, log *slog.Logger) error {
	if g.listener == nil {
		return nil
	}
	return newServer(serves.PeerServer(g.files.FromPeers()), grace, log).serveTLS(ctx, g.listener)
}
