package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
)

// Everybody, among the namespaces of Function.Callers, lets everybody call the function who reaches the gateway.
const Everybody = "*"

// Callers finds the namespaces of callers. Its methods may be called concurrently.
type Callers interface {
	// FindToken returns the token in a value of the header Authorization that is for the gateway, "" if there is none. It is not passed on.
	FindToken(authorization string) string
	// OfToken returns the namespace that a token of FindToken is of.
	OfToken(ctx context.Context, token string) (namespace string, err error)
	// OfAddress returns the namespace of the pod with an address.
	OfAddress(ctx context.Context, address netip.Addr) (namespace string, err error)
}

// ErrCallersUnavailable is the error of Callers, wrapped, if it cannot be known now who calls.
var ErrCallersUnavailable = errors.New("it cannot be known now who calls")

// Reasons of refusals: the caller may not call the function, or it cannot be known now who calls.
const (
	reasonCaller        = "caller-not-allowed"
	reasonCallerUnknown = "caller-unknown"
)

// mayCall reports whether callers of a namespace may call the function.
func (f *Function) mayCall(namespace string) bool {
	return namespace == f.Namespace || slices.Contains(f.Callers, namespace)
}

func (f *Function) isOpen() bool { return slices.Contains(f.Callers, Everybody) }

// takeToken removes the gateway's token from a request, so that no replica gets it, and returns it.
func (g *Gateway) takeToken(r *http.Request) (*http.Request, string) {
	if g.callers == nil {
		return r, ""
	}
	token := g.callers.FindToken(r.Header.Get("Authorization"))
	if token == "" {
		return r, ""
	}
	clean := *r
	clean.Header = r.Header.Clone()
	clean.Header.Del("Authorization")
	return &clean, token
}

// callerOf returns the namespace of who sends a request: that of its token or else that of its pod, whose address is that of the connection. What
// headers say of addresses is the client's to choose.
func (g *Gateway) callerOf(r *http.Request, token string) (string, error) {
	if token != "" {
		return g.callers.OfToken(r.Context(), token)
	}
	address, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "", err
	}
	return g.callers.OfAddress(r.Context(), address.Addr().Unmap().WithZone(""))
}

// checkCaller returns the refusal of a request whose sender may not call the function, or else a zero one.
func (e *exchange) checkCaller() refusal {
	if e.gateway.callers == nil || e.fromPeer { // the other gateway has checked
		return refusal{}
	}
	f := e.function.settings()
	if f.isOpen() {
		return refusal{}
	}
	namespace, err := e.gateway.callerOf(e.request, e.token)
	switch {
	case errors.Is(err, ErrCallersUnavailable):
		return newRefusal(http.StatusServiceUnavailable, reasonCallerUnknown, err.Error())
	case err != nil:
		return newRefusal(http.StatusForbidden, reasonCaller, fmt.Sprintf("%s: call the function from a pod of namespace %s, or with a token: %s",
			err, e.function.name.Namespace, "kubectl create token ACCOUNT --namespace "+e.function.name.Namespace+" --audience serving.gshare.dev"))
	case !f.mayCall(namespace):
		return newRefusal(http.StatusForbidden, reasonCaller, fmt.Sprintf("callers of namespace %s may not call function %s of namespace %s: "+
			"its spec.access.namespaces has to name %[1]s", namespace, e.function.name.Name, e.function.name.Namespace))
	}
	return refusal{}
}

// mayList returns which functions the sender of a request may know of: those that it may call.
func (g *Gateway) mayList(r *http.Request, token string) func(FunctionName) bool {
	if g.callers == nil {
		return func(FunctionName) bool { return true }
	}
	namespace, err := g.callerOf(r, token)
	return func(name FunctionName) bool {
		f := g.function(name)
		if f == nil {
			return false
		}
		s := f.settings()
		return s.isOpen() || err == nil && s.mayCall(namespace)
	}
}
