package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
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

// sender is who sends a request, as far as it is known.
type sender struct {
	gateway   *Gateway
	request   *http.Request
	unchecked bool   // it may call everything: another gateway, which has found out who calls, or nobody is to be found out
	token     string // that it has sent for the gateway, "" without one
	asked     bool   // what follows is known
	namespace string
	err       error
	hidden    *function // that the request names, and the sender may not call
}

// refuseTokens is the answer to requests with several values of the header Authorization, of which there may be one. Servers differ in which one they
// take: a replica could get the gateway's token, or the gateway overlook it.
var refuseTokens = newRefusal(http.StatusBadRequest, reasonBadRequest, "the request has several values of the header Authorization")

// takeToken removes the gateway's token from a request, so that no replica gets it, and returns it.
func (g *Gateway) takeToken(r *http.Request) (*http.Request, string, refusal) {
	if g.callers == nil {
		return r, "", refusal{}
	}
	values := r.Header["Authorization"]
	if len(values) > 1 || len(values) == 1 && g.isAmongOthers(values[0]) {
		return r, "", refuseTokens
	}
	token := g.callers.FindToken(r.Header.Get("Authorization"))
	if token == "" {
		return r, "", refusal{}
	}
	clean := *r
	clean.Header = r.Header.Clone()
	clean.Header.Del("Authorization")
	return &clean, token, refusal{}
}

// isAmongOthers reports whether the gateway's token is one of several values that a proxy has joined, which other schemes do with parameters.
func (g *Gateway) isAmongOthers(authorization string) bool {
	if !strings.Contains(authorization, ",") {
		return false
	}
	for value := range strings.SplitSeq(authorization, ",") {
		if g.callers.FindToken(strings.TrimSpace(value)) != "" {
			return true
		}
	}
	return false
}

// caller returns the namespace of who sends the request: that of its token or else that of its pod, whose address is that of the connection. What
// headers say of addresses is the client's to choose.
func (s *sender) caller() (string, error) {
	if s.asked {
		return s.namespace, s.err
	}
	s.asked = true
	callers, ctx := s.gateway.callers, s.request.Context()
	if s.token != "" {
		s.namespace, s.err = callers.OfToken(ctx, s.token)
		return s.namespace, s.err
	}
	address, err := netip.ParseAddrPort(s.request.RemoteAddr)
	if err != nil {
		s.err = err
		return "", err
	}
	s.namespace, s.err = callers.OfAddress(ctx, address.Addr().Unmap().WithZone(""))
	return s.namespace, s.err
}

// callable returns a function if the sender may call it. Otherwise it is as if there were none: which functions a namespace has is not for others.
func (s *sender) callable(name FunctionName) *function {
	f := s.gateway.function(name)
	if f == nil || s.unchecked {
		return f
	}
	settings := f.settings()
	if settings.isOpen() {
		return f
	}
	if namespace, err := s.caller(); err == nil && settings.mayCall(namespace) {
		return f
	}
	s.hidden = f
	return nil
}

// unknown returns the refusal of a request that names no function which its sender may call, in its host or as its model. It does not depend on
// whether there is such a function, and the caller is found out also if there is none: how long that takes would tell, too.
func (s *sender) unknown(kind, asked, where string, name FunctionName) refusal {
	form := fmt.Sprintf("the %s of a request is FUNCTION or FUNCTION.NAMESPACE", where)
	if s.unchecked || name.Namespace == "" { // there is never one without
		return newRefusal(http.StatusNotFound, reasonUnknown, fmt.Sprintf("no %s %.100q: %s", kind, asked, form))
	}
	namespace, err := s.caller()
	switch {
	case errors.Is(err, ErrCallersUnavailable):
		return newRefusal(http.StatusServiceUnavailable, reasonCallerUnknown, err.Error())
	case err != nil:
		return newRefusal(http.StatusForbidden, reasonCaller, fmt.Sprintf("%s: call the function from a pod of namespace %.100s, or with a token: %s",
			err, name.Namespace, fmt.Sprintf("kubectl create token ACCOUNT --namespace %.100s --audience serving.gshare.dev", name.Namespace)))
	}
	return newRefusal(http.StatusNotFound, reasonUnknown, fmt.Sprintf("no %s %.100q that callers of namespace %s may call: %s", kind, asked, namespace, form))
}

// refuseUnnamed answers a request that names no function which its sender may call. Its answer does not say whether there is one; the metrics and the
// log do.
func (e *exchange) refuseUnnamed(why refusal) {
	hidden := e.sender.hidden
	e.write(why) // in the form for no function, whatever the hidden one has
	if hidden == nil {
		e.gateway.metrics.refused(FunctionName{}, why.reason)
		return
	}
	e.function, e.status, e.reason = hidden, why.status, why.reason
	if why.reason == reasonUnknown {
		e.reason = reasonCaller
	}
	hidden.count(func(s *statistics) { s.reject(&s.counts.Refused) })
	e.gateway.metrics.refused(hidden.name, e.reason)
	e.report()
	if ctx := e.request.Context(); e.gateway.log.Enabled(ctx, slog.LevelInfo) {
		e.gateway.log.LogAttrs(ctx, slog.LevelInfo, "the caller may not call the function", slog.String("function", hidden.name.String()),
			slog.String("namespace", e.sender.namespace), slog.Any("error", e.sender.err), slog.String("address", e.request.RemoteAddr))
	}
}

// mayList returns which functions the sender of the request may know of: those that it may call.
func (s *sender) mayList() func(FunctionName) bool {
	if s.unchecked {
		return func(FunctionName) bool { return true }
	}
	namespace, err := s.caller()
	return func(name FunctionName) bool {
		f := s.gateway.function(name)
		if f == nil {
			return false
		}
		settings := f.settings()
		return settings.isOpen() || err == nil && settings.mayCall(namespace)
	}
}
