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

// Everybody, as an element of Function.Callers, lets everyone who reaches the gateway call the function.
const Everybody = "*"

// Callers finds out to which namespace a caller belongs. Its methods may be called concurrently.
type Callers interface {
	// FindToken returns the token for the gateway in the value of an Authorization header, or "" if there is none. Such a token is not passed on to
	// replicas.
	FindToken(authorization string) string
	// OfToken returns the namespace to which a token that FindToken returned belongs.
	OfToken(ctx context.Context, token string) (namespace string, err error)
	// OfAddress returns the namespace of the pod that has the address.
	OfAddress(ctx context.Context, address netip.Addr) (namespace string, err error)
}

// ErrCallersUnavailable is what the errors of Callers wrap while it cannot be determined who calls.
var ErrCallersUnavailable = errors.New("it cannot be known now who calls")

// mayCall reports whether callers of a namespace may call the function.
func (f *Function) mayCall(namespace string) bool {
	return namespace == f.Namespace || slices.Contains(f.Callers, namespace)
}

func (f *Function) isOpen() bool { return slices.Contains(f.Callers, Everybody) }

// sender is the sender of a request, as far as the gateway knows it.
type sender struct {
	gateway   *Gateway
	request   *http.Request
	unchecked bool   // it may call every function: callers are not checked, or another gateway sent the request and has checked
	token     string // the token that it sent for the gateway; "" if none
	asked     bool   // caller has set namespace and err
	namespace string
	err       error
	hidden    *function // the function that the request names and the sender may not call; else nil
}

// refuseTokens is the answer to requests with several values of the header Authorization, which may have only one. Servers differ in which of them
// they use: a replica could get the gateway's token, or the gateway could overlook it.
var refuseTokens = newRefusal(causeBadRequest, "the request has several values of the header Authorization")

// takeToken removes the gateway's token from a request, so that no replica gets it, and returns it.
func (g *Gateway) takeToken(r *http.Request) (*http.Request, string, refusal) {
	if g.callers == nil {
		return r, "", refusal{}
	}
	values := r.Header[authorizationHeader]
	if len(values) > 1 || len(values) == 1 && g.isAmongOthers(values[0]) {
		return r, "", refuseTokens
	}
	token := g.callers.FindToken(r.Header.Get(authorizationHeader))
	if token == "" {
		return r, "", refusal{}
	}
	clean := *r
	clean.Header = r.Header.Clone()
	clean.Header.Del(authorizationHeader)
	return &clean, token, refusal{}
}

// isAmongOthers reports whether the gateway's token is one of several values that a proxy has joined by commas. A comma alone does not mean that:
// other authentication schemes separate parameters by it.
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

// caller returns the sender's namespace: that of its token or, without a token, that of the pod with the source address of the connection. Addresses
// in headers are ignored, since clients can write there what they like.
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

// callable returns the function of this name if the sender may call it, and otherwise nil, as if there were none: which functions a namespace has is
// no business of other namespaces.
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

// unknown returns the refusal of a request whose host, or whose model, names no function that the sender may call. The refusal does not depend on
// whether such a function exists. The caller is looked up even if there is none, since the time that takes would give it away, too.
func (s *sender) unknown(kind, asked, where string, name FunctionName) refusal {
	form := fmt.Sprintf("the %s of a request is FUNCTION or FUNCTION.NAMESPACE", where)
	if s.unchecked || name.Namespace == "" { // no function is without a namespace
		return newRefusal(causeUnknown, fmt.Sprintf("no %s %.100q: %s", kind, asked, form))
	}
	namespace, err := s.caller()
	switch {
	case errors.Is(err, ErrCallersUnavailable):
		return newRefusal(causeCallerUnknown, err.Error())
	case err != nil:
		return newRefusal(causeCaller, fmt.Sprintf("%s: call the function from a pod of namespace %.100s, or with a token: %s",
			err, name.Namespace, fmt.Sprintf("kubectl create token ACCOUNT --namespace %.100s --audience serving.gshare.dev", name.Namespace)))
	}
	return newRefusal(causeUnknown, fmt.Sprintf("no %s %.100q that callers of namespace %s may call: %s", kind, asked, namespace, form))
}

// refuseUnnamed answers a request that names no function which its sender may call. The answer does not reveal whether the function exists; the
// metrics and the log do.
func (e *exchange) refuseUnnamed(why refusal) {
	hidden := e.sender.hidden
	e.write(why) // in the form for an unknown function, whatever the protocol of the hidden one
	if hidden == nil {
		e.gateway.metrics.refused(FunctionName{}, why.reason)
		return
	}
	e.function, e.status, e.reason = hidden, why.status, why.reason
	if why.reason == reasonUnknown {
		e.reason = reasonCaller
	}
	hidden.count(func(s *statistics) { s.reject(&s.counts.Refused) })
	hidden.measure(func(m *metrics) { m.refused(hidden.name, e.reason) })
	e.report()
	if ctx := e.request.Context(); e.gateway.log.Enabled(ctx, slog.LevelDebug) {
		e.gateway.log.LogAttrs(ctx, slog.LevelDebug, "the caller may not call the function", slog.String("function", hidden.name.String()),
			slog.String("namespace", e.sender.namespace), slog.Any("error", e.sender.err), slog.String("address", e.request.RemoteAddr))
	}
}

// mayList returns a function that reports which functions the sender may see in lists: those that it may call.
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
