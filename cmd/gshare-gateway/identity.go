package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/serving/gateway/kubernetes"
	"github.com/gshare-dev/gshare/serving/gateway/peers"
	"github.com/gshare-dev/gshare/serving/identity"
	"github.com/gshare-dev/gshare/serving/report"
)

// reporting is the port on which the load is reported.
type reporting struct {
	listener net.Listener // nil if it is not
	options  []grpc.ServerOption
}

// newReporting listens on the port for the controller. Without --tls it does not: the controller could not tell who reports.
func (o *options) newReporting(ctx context.Context, config *rest.Config, log *slog.Logger) (*reporting, error) {
	options, err := o.onlyController(config)
	if err != nil {
		return nil, err
	}
	if o.tls == "" {
		log.Warn("report the load to nobody, since --tls is empty")
		return &reporting{}, nil
	}
	listeners, err := listen(ctx, "--report", o.report)
	if err != nil {
		return nil, err
	}
	return &reporting{listeners[0], options}, nil
}

// serve serves reports until stop is called.
func (r *reporting) serve(ctx context.Context, reports *report.Server) (stop func()) {
	if r.listener == nil {
		return func() {}
	}
	return serveReports(ctx, r.listener, reports, r.options...)
}

// onlyController returns the options of a server that speaks TLS, and only to the controller.
func (o *options) onlyController(config *rest.Config) ([]grpc.ServerOption, error) {
	namespace, name, _ := strings.Cut(o.controller, "/")
	if namespace == "" || name == "" {
		return nil, fmt.Errorf("--controller: %q is no NAMESPACE/NAME", o.controller)
	}
	review, err := reviewBy(config)
	if err != nil {
		return nil, err
	}
	tokens := identity.NewTokens(identity.AudienceReports, review)
	return []grpc.ServerOption{
		grpc.Creds(credentials.NewTLS(identity.NewFiles(o.tls).TLS())),
		grpc.StreamInterceptor(tokens.Only(identity.Account{Namespace: namespace, Name: name})),
	}, nil
}

// reviewBy returns how to have tokens reviewed by the API server.
func reviewBy(config *rest.Config) (identity.Review, error) {
	client, err := authentication.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return identity.ReviewBy(client.TokenReviews()), nil
}

// callers are those of functions, and the pods by which they are found.
type callers struct {
	kubernetes.Callers
	pods *core.CoreV1Client
}

// newCallers returns the callers of a cluster. The gateways know each other's tokens while the API server is away.
func newCallers(config *rest.Config, others *peers.Peers) (*callers, error) {
	review, err := reviewBy(config)
	if err != nil {
		return nil, err
	}
	pods, err := core.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	tokens := identity.NewTokens(identity.AudienceFunctions, review)
	if others != nil {
		tokens.AskOthers(others.Ask)
		others.Answer(identity.TokensPath, tokens.ServeOthers)
	}
	return &callers{kubernetes.Callers{Addresses: kubernetes.NewAddresses(), Tokens: tokens}, pods}, nil
}
