package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/gshare-dev/gshare/serving/gateway"
)

// callers knows a pod in each of two namespaces. Tokens begin with "ours-", followed by the namespace.
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

// echo is a replica that responds with the Authorization header that it received.
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
		"other namespace":        {callers{}, nil, theirs, "", "", 404, "unknown-function", "that callers of namespace others may call"},
		"allowed":                {callers{}, []string{"x", "others"}, theirs, "", "", 200, "", "got "},
		"forwarded for a friend": {callers{}, nil, theirs, "", "10.0.0.1", 404, "unknown-function", "that callers of namespace others may call"},
		"outside":                {callers{}, nil, outside, "", "", 403, "caller-not-allowed", "kubectl create token ACCOUNT --namespace models"},
		"no address":             {callers{}, nil, "@", "", "", 403, "caller-not-allowed", "kubectl create token"},
		"everybody":              {callers{}, []string{"*"}, outside, "", "", 200, "", "got "},
		"token":                  {callers{}, nil, outside, "Bearer ours-models", "", 200, "", "got "},
		"token, everybody":       {callers{}, []string{"*"}, outside, "Bearer ours-bad", "", 200, "", "got "},
		"token of others":        {callers{}, nil, ours, "Bearer ours-others", "", 404, "unknown-function", "that callers of namespace others may call"},
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
			want := map[int]string{403: "7", 404: "5", 503: "14"}[test.status]
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

// TestHiddenFunctions: a sender who may not call a function gets the same response as if the function did not exist, and the gateway takes
// as many steps to identify the sender.
func TestHiddenFunctions(t *testing.T) {
	type request struct{ method, host, path, body, contentType string }
	answerTo := func(q request, from, authorization string, exists bool) (*httptest.ResponseRecorder, int, string) {
		counted := &countedCallers{}
		registry := prometheus.NewRegistry()
		var log strings.Builder
		text := slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})
		g := gateway.New(gateway.Config{Upstream: echo{}, UpstreamGRPC: echo{}, Callers: counted, Metrics: registry, Log: slog.New(text)})
		functions := []gateway.Function{{FunctionName: gateway.FunctionName{Namespace: "open", Name: "open"}, Protocol: gateway.OpenAI, Callers: []string{"*"}}}
		if exists {
			functions = append(functions, gateway.Function{FunctionName: gateway.FunctionName{Namespace: "models", Name: "chat"}, Protocol: gateway.OpenAI},
				gateway.Function{FunctionName: gateway.FunctionName{Namespace: "models", Name: "plain"}})
		}
		for _, f := range functions {
			if err := g.SetFunction(f); err != nil {
				t.Fatal(err)
			}
			if err := g.SetReplicas(f.FunctionName, []gateway.Replica{{ID: "a", Address: "a:80"}}); err != nil {
				t.Fatal(err)
			}
		}
		r := httptest.NewRequestWithContext(t.Context(), q.method, "http://"+q.host+q.path, strings.NewReader(q.body))
		r.RemoteAddr = from
		if q.contentType != "" {
			r.ProtoMajor = 2
			r.Header.Set("Content-Type", q.contentType)
		}
		if authorization != "" {
			r.Header.Set("Authorization", authorization)
		}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		metrics, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return w, counted.asked, fmt.Sprint(metrics, log.String())
	}
	chat := `{"model": "chat.models"}`
	for name, q := range map[string]request{
		"host":                        {http.MethodGet, "chat.models", "/", "", ""},
		"another protocol":            {http.MethodGet, "plain.models", "/", "", ""},
		"host, path of models":        {http.MethodPost, "plain.models", "/v1/completions", chat, ""},
		"host, list":                  {http.MethodGet, "chat.models", "/v1/models", "", ""},
		"host, open model":            {http.MethodPost, "chat.models", "/v1/completions", `{"model": "open.open"}`, ""},
		"host, no model":              {http.MethodPost, "chat.models", "/v1/completions", "{", ""},
		"model":                       {http.MethodPost, "gateway.example.org", "/v1/completions", chat, ""},
		"model of a further function": {http.MethodPost, "gateway.example.org", "/v1/completions", `{"model": "plain.models"}`, ""},
		"gRPC":                        {http.MethodPost, "plain.models", "/a.B/C", "\x00\x00\x00\x00\x00", "application/grpc"},
	} {
		for sender, is := range map[string]struct{ from, authorization string }{
			"pod": {"10.0.0.2:1", ""}, "token": {"192.0.2.1:1", "Bearer ours-others"}, "outside": {"192.0.2.1:1", ""},
			"bad token": {"10.0.0.1:1", "Bearer ours-bad"}, "API server away": {"192.0.2.1:1", "Bearer ours-away"},
		} {
			t.Run(name+", "+sender, func(t *testing.T) {
				with, asked, seen := answerTo(q, is.from, is.authorization, true)
				without, askedWithout, _ := answerTo(q, is.from, is.authorization, false)
				if with.Code != without.Code || with.Body.String() != without.Body.String() || !headersEqual(with.Header(), without.Header()) {
					t.Errorf("%d %v %s\nwithout the function: %d %v %s", with.Code, with.Header(), with.Body, without.Code, without.Header(), without.Body)
				}
				// If the request also names an open model, the sender need not be identified if there is no function of the host's name.
				if asked != askedWithout && name != "host, open model" {
					t.Errorf("%d questions who calls, %d without the function", asked, askedWithout)
				}
				if name == "host" && (!strings.Contains(seen, "caller-") || !strings.Contains(seen, "function=models/chat")) {
					t.Errorf("the metrics and the log do not say that a caller was refused: %s", seen)
				}
			})
		}
	}
}

func headersEqual(a, b http.Header) bool {
	a, b = a.Clone(), b.Clone()
	a.Del("Server-Timing")
	b.Del("Server-Timing")
	return maps.EqualFunc(a, b, slices.Equal)
}

// countedCallers is callers, with a count of the queries.
type countedCallers struct {
	callers
	asked int
}

func (c *countedCallers) OfToken(ctx context.Context, token string) (string, error) {
	c.asked++
	return c.callers.OfToken(ctx, token)
}

func (c *countedCallers) OfAddress(ctx context.Context, address netip.Addr) (string, error) {
	c.asked++
	return c.callers.OfAddress(ctx, address)
}

// TestSeveralAuthorizations: no replica gets the gateway's token, even if it is sent beside another Authorization value.
func TestSeveralAuthorizations(t *testing.T) {
	g := gateway.New(gateway.Config{Upstream: echo{}, Callers: callers{}})
	fn := gateway.FunctionName{Namespace: "models", Name: "chat"}
	if err := g.SetFunction(gateway.Function{FunctionName: fn, Callers: []string{gateway.Everybody}}); err != nil {
		t.Fatal(err)
	}
	if err := g.SetReplicas(fn, []gateway.Replica{{ID: "a", Address: "a:80"}}); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		values []string
		status int
		answer string
	}{
		"token first":       {[]string{"Bearer ours-models", "Bearer sk-1"}, 400, "several values"},
		"token last":        {[]string{"Bearer sk-1", "Bearer ours-models"}, 400, "several values"},
		"token twice":       {[]string{"Bearer ours-models", "Bearer ours-models"}, 400, "several values"},
		"joined":            {[]string{"Bearer sk-1, Bearer ours-models"}, 400, "several values"},
		"joined by a comma": {[]string{"Bearer ours-models,Basic x"}, 400, "several values"},
		"parameters":        {[]string{`Digest username="a", realm="b"`}, 200, `got Digest username="a", realm="b"`},
		"token alone":       {[]string{"Bearer ours-models"}, 200, "got "},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://chat.models/", nil)
			r.RemoteAddr = "10.0.0.1:1000"
			r.Header["Authorization"] = test.values
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			if w.Code != test.status || !strings.Contains(w.Body.String(), test.answer) || test.status == 200 && w.Body.String() != test.answer {
				t.Errorf("%d %s, want %d %s", w.Code, w.Body, test.status, test.answer)
			}
		})
	}
}
