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

// reporting holds the port on which the gateway reports its load.
type reporting struct {
	listener net.Listener // nil if the load is not reported
	options  []grpc.ServerOption
}

// newReporting listens on the port for the controller. Without --tls it does not listen: the controller could not tell which gateway a report is
// from.
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

// onlyController returns the options of a server that speaks TLS and accepts streams only from the controller's service account.
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

// reviewBy returns a function that has the API server review tokens.
func reviewBy(config *rest.Config) (identity.Review, error) {
	client, err := authentication.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return identity.ReviewBy(client.TokenReviews()), nil
}

// callers identifies who calls a function, by the address of the caller's pod and by its token. pods is the client that reads the pods.
type callers struct {
	kubernetes.Callers
	pods *core.CoreV1Client
}

// newCallers returns the callers of a cluster. While the API server is away, the gateways ask each other about tokens that they have reviewed.
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
