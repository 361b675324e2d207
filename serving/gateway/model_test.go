package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// chat sends a request of the protocol OpenAI to a host that names no function.
func (w *world) chat(body string) answer {
	return w.ask(w.Context(), body, "Host", "gateway.example.com", "Path", "/v1/chat/completions")
}

// TestModelNamesFunction checks that the model in the body names the function where the host does not, and only for functions with the protocol
// OpenAI.
func TestModelNamesFunction(t *testing.T) {
	start(t, Function{Protocol: OpenAI, MaxBody: 2000}, func(w *world) {
		w.replicas(echo(5*ms), 4, 0, "a")
		for _, f := range []Function{
			{FunctionName: FunctionName{"team", "bert"}, Protocol: OpenAI, Hold: Hold{Requests: 1, For: ms}},
			{FunctionName: FunctionName{"default", "plain"}},
		} {
			if err := w.gateway.SetFunction(f); err != nil {
				w.Fatal(err)
			}
		}
		for name, c := range map[string]struct {
			body   string
			status int
			reason string
		}{
			"last member":        {`{"messages":[{"content":"\"model\":\"plain\""}],"model":"resnet"}`, 200, ""},
			"with its namespace": {`{"model":"ResNet.default"}`, 200, ""},
			"of a namespace":     {`{"model":"bert.team"}`, 503, reasonHoldExpired},
			"of another one":     {`{"model":"bert"}`, 404, reasonUnknown},
			"another protocol":   {`{"model":"plain"}`, 404, reasonUnknown},
			"no model":           {`{"messages":[]}`, 400, reasonBadRequest},
			"two models":         {`{"model":"resnet","model":"bert.team"}`, 400, reasonBadRequest},
			"not JSON":           {`model=resnet`, 400, reasonBadRequest},
			"empty":              {``, 400, reasonBadRequest},
			"beyond MaxBody":     {`{"model":"resnet","a":"` + strings.Repeat("x", 2000) + `"}`, 413, reasonTooLarge},
		} {
			if a := w.chat(c.body); a.status != c.status || a.reason != c.reason || a.status == 200 && a.body != c.body {
				w.Errorf("%s: %+v, want %d %s", name, a, c.status, c.reason)
			}
		}
		if a := w.chat(`{"model":"other"}`); !strings.HasPrefix(a.body, `{"error":{"code":"unknown-function","message":"no model`) {
			w.Errorf("an error that clients of OpenAI cannot read: %s", a.body)
		}
		if a := w.ask(w.Context(), "", "X-Slo-Ttft-Ms", "never"); !strings.HasPrefix(a.body, `{"error":{"code":"bad-request"`) {
			w.Errorf("an error that clients of OpenAI cannot read: %s", a.body)
		}
		if l := w.gateway.Load(resnet); l.Arrived != 4 || l.Answered != 2 {
			w.Errorf("%+v", l)
		}
		const post = "POST /v1/completions HTTP/1.1\r\nHost: other.example.com\r\n"
		if a := w.raw(post+"Content-Length: 67108865\r\n\r\nx", 12); a.body != "HTTP/1.1 413" || a.took != 0 {
			w.Errorf("too large: %+v", a)
		}
		if a := w.raw(post+"Content-Length: 100\r\n\r\nx", 12); a.body != "HTTP/1.1 408" || a.took != bodyTimeout {
			w.Errorf("too slow: %+v", a)
		}
		if n := w.gateway.bodies.bytes; n != 0 {
			w.Errorf("%d bytes are never released", n)
		}
		w.gateway.RemoveFunction(resnet)
		w.gateway.RemoveFunction(FunctionName{"team", "bert"})
		if a := w.raw(post+"Content-Length: 100\r\n\r\nx", 12); a.body != "HTTP/1.1 404" || a.took != bodyTimeout {
			w.Errorf("a body is read although no function has the protocol: %+v", a)
		}
	})
}

// TestListModels checks that a client whose host names no function gets the models that it may name.
func TestListModels(t *testing.T) {
	start(t, Function{Protocol: OpenAI}, func(w *world) {
		w.replicas(echo(0), 1, 0, "a")
		for _, f := range []Function{{FunctionName: FunctionName{"team", "bert"}, Protocol: OpenAI}, {FunctionName: FunctionName{"default", "plain"}}} {
			if err := w.gateway.SetFunction(f); err != nil {
				w.Fatal(err)
			}
		}
		get := func(host, path string) (int, string) {
			r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "http://gateway:80"+path, nil)
			if err != nil {
				w.Fatal(err)
			}
			r.Host = host
			response, err := w.client.Do(r)
			if err != nil {
				w.Fatal(err)
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil {
				w.Error(err)
			}
			return response.StatusCode, string(text)
		}
		const want = `{"object":"list","data":[{"id":"resnet","object":"model","created":0,"owned_by":"default"},` +
			`{"id":"bert.team","object":"model","created":0,"owned_by":"team"}]}`
		if status, text := get("gateway.example.com:8080", "/v1/models"); status != 200 || text != want {
			w.Errorf("%d %s", status, text)
		}
		if status, text := get("resnet", "/v1/models"); status != 200 || text != "" {
			w.Errorf("of a function, whose replica answers: %d %s", status, text)
		}
		if status, _ := get("gateway.example.com", "/v1/other"); status != 404 {
			w.Errorf("another path: %d", status)
		}
		w.gateway.RemoveFunction(resnet)
		w.gateway.RemoveFunction(FunctionName{"team", "bert"})
		if status, text := get("gateway.example.com", "/v1/models"); status != 200 || text != `{"object":"list","data":[]}` {
			w.Errorf("without models: %d %s", status, text)
		}
	})
}
