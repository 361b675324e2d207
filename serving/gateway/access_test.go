package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gshare-dev/gshare/serving/gateway"
)

// callers has a pod in each of two namespaces. Tokens begin with "ours-"; what follows is the namespace.
type callers struct{}

func (callers) FindToken(authorization string) string {
	if token := strings.TrimPrefix(authorization, "Bearer "); strings.HasPrefix(token, "ours-") {
		return token
	}
	return ""
}

func (callers) OfToken(_ context.Context, token string) (string, error) {
	switch namespace := strings.TrimPrefix(token, "ours-"); namespace {
	case "bad":
		return "", errors.New("the token is not valid")
	case "away":
		return "", fmt.Errorf("%w: connection refused", gateway.ErrCallersUnavailable)
	default:
		return namespace, nil
	}
}

func (callers) OfAddress(_ context.Context, address netip.Addr) (string, error) {
	switch address.String() {
	case "10.0.0.1":
		return "models", nil
	case "10.0.0.2":
		return "others", nil
	}
	return "", fmt.Errorf("the address %s is not that of a pod", address)
}

// echo is a replica that answers with the header Authorization that it gets.
type echo struct{}

func (echo) RoundTrip(r *http.Request) (*http.Response, error) {
	header := http.Header{}
	if r.ProtoMajor == 2 || strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
		header.Set("Grpc-Status", "0")
	}
	return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader("got " + r.Header.Get("Authorization")))}, nil
}

func TestCallers(t *testing.T) {
	const ours, theirs, outside = "10.0.0.1:1000", "10.0.0.2:1000", "192.0.2.1:1000"
	for name, test := range map[string]struct {
		callers        gateway.Callers
		allowed        []string
		from           string
		authorization  string
		forwarded      string
		status         int
		reason, answer string
	}{
		"same namespace":         {callers{}, nil, ours, "", "", 200, "", "got "},
		"mapped address":         {callers{}, nil, "[::ffff:10.0.0.1]:1000", "", "", 200, "", "got "},
		"its own authorization":  {callers{}, nil, ours, "Bearer sk-1", "", 200, "", "got Bearer sk-1"},
		"other namespace":        {callers{}, nil, theirs, "", "", 403, "caller-not-allowed", "spec.access.namespaces has to name others"},
		"allowed":                {callers{}, []string{"x", "others"}, theirs, "", "", 200, "", "got "},
		"forwarded for a friend": {callers{}, nil, theirs, "", "10.0.0.1", 403, "caller-not-allowed", "others"},
		"outside":                {callers{}, nil, outside, "", "", 403, "caller-not-allowed", "kubectl create token ACCOUNT --namespace models"},
		"no address":             {callers{}, nil, "@", "", "", 403, "caller-not-allowed", "kubectl create token"},
		"everybody":              {callers{}, []string{"*"}, outside, "", "", 200, "", "got "},
		"token":                  {callers{}, nil, outside, "Bearer ours-models", "", 200, "", "got "},
		"token, everybody":       {callers{}, []string{"*"}, outside, "Bearer ours-bad", "", 200, "", "got "},
		"token of others":        {callers{}, nil, ours, "Bearer ours-others", "", 403, "caller-not-allowed", "others"},
		"token, allowed":         {callers{}, []string{"others"}, outside, "Bearer ours-others", "", 200, "", "got "},
		"token, not valid":       {callers{}, nil, ours, "Bearer ours-bad", "", 403, "caller-not-allowed", "the token is not valid"},
		"API server away":        {callers{}, nil, outside, "Bearer ours-away", "", 503, "caller-unknown", "connection refused"},
		"one machine":            {nil, nil, outside, "Bearer ours-bad", "", 200, "", "got Bearer ours-bad"},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			g := gateway.New(gateway.Config{Upstream: echo{}, UpstreamGRPC: echo{}, Callers: test.callers, Metrics: registry})
			fn := gateway.FunctionName{Namespace: "models", Name: "chat"}
			if err := g.SetFunction(gateway.Function{FunctionName: fn, Protocol: gateway.OpenAI, Callers: test.allowed}); err != nil {
				t.Fatal(err)
			}
			if err := g.SetReplicas(fn, []gateway.Replica{{ID: "a", Address: "a:80"}}); err != nil {
				t.Fatal(err)
			}
			send := func(method, host, path, body string) *httptest.ResponseRecorder {
				r := httptest.NewRequestWithContext(t.Context(), method, "http://"+host+path, strings.NewReader(body))
				r.RemoteAddr = test.from
				if test.authorization != "" {
					r.Header.Set("Authorization", test.authorization)
				}
				if test.forwarded != "" {
					r.Header.Set("X-Forwarded-For", test.forwarded)
				}
				w := httptest.NewRecorder()
				g.ServeHTTP(w, r)
				return w
			}
			for _, w := range []*httptest.ResponseRecorder{
				send(http.MethodGet, "chat.models", "/", ""), send(http.MethodPost, "gateway.example.org", "/v1/completions", `{"model": "chat.models"}`),
			} {
				if w.Code != test.status || w.Header().Get("X-Gshare-Reason") != test.reason || !strings.Contains(w.Body.String(), test.answer) {
					t.Errorf("%d %s %s; want %d %s %s", w.Code, w.Header().Get("X-Gshare-Reason"), w.Body, test.status, test.reason, test.answer)
				}
				if test.answer == "got " && w.Body.String() != "got " {
					t.Errorf("the replica %s", w.Body)
				}
			}
			if list := send(http.MethodGet, "gateway.example.org", "/v1/models", ""); strings.Contains(list.Body.String(), "chat") != (test.status == 200) {
				t.Errorf("the list is %s", list.Body)
			}
			if err := g.SetFunction(gateway.Function{FunctionName: fn, Callers: test.allowed}); err != nil {
				t.Fatal(err)
			}
			want := map[int]string{403: "7", 503: "14"}[test.status]
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://chat.models/a.B/C", strings.NewReader("\x00\x00\x00\x00\x00"))
			r.ProtoMajor, r.RemoteAddr = 2, test.from
			r.Header.Set("Content-Type", "application/grpc")
			if test.authorization != "" {
				r.Header.Set("Authorization", test.authorization)
			}
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			if got := w.Header().Get("Grpc-Status"); want != "" && got != want {
				t.Errorf("gRPC: status %q, want %q", got, want)
			}
			if refused := testutil.CollectAndCount(registry, "gshare_gateway_refusals_total"); (refused > 0) != (test.status != 200) {
				t.Errorf("%d series of refusals", refused)
			}
			if l := g.Load(fn); test.status != 200 && (l.Received != 0 || l.Invalid == 0) {
				t.Errorf("refused callers count as load: %+v", l)
			}
		})
	}
}
