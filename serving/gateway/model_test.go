package gateway

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// chat sends a request of the protocol OpenAI to a host name that identifies no function.
func (w *world) chat(body string) answer {
	return w.ask(w.Context(), body, "Host", "gateway.example.com", "Path", "/v1/chat/completions")
}

// TestModelNamesFunction checks that the model in the body identifies the function if the host name does not, and only for functions with the
// protocol OpenAI.
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

// TestListModels checks that a client whose host name identifies no function gets a list of the models that it may use.
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

// counting looks up callers, and is also the upstream. It records how many bytes are accounted for at that time, of bodies that were searched
// for a model.
type counting struct {
	gateway *Gateway
	bytes   share.Bytes
}

func (c *counting) FindToken(string) string                         { return "" }
func (c *counting) OfToken(context.Context, string) (string, error) { return "", nil }
func (c *counting) OfAddress(context.Context, netip.Addr) (string, error) {
	c.bytes = c.gateway.bodies.bytes
	return "team", nil
}

func (c *counting) RoundTrip(*http.Request) (*http.Response, error) {
	c.bytes = c.gateway.bodies.bytes
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// TestModelBodyCounts: a body is accounted for as long as it is in memory, including while the caller is being identified and while another
// gateway handles the request.
func TestModelBodyCounts(t *testing.T) {
	body := `{"model":"resnet","prompt":"` + strings.Repeat("x", 100_000) + `"}`
	t.Run("caller", func(t *testing.T) {
		asked, sent := &counting{}, &counting{}
		g := New(Config{Callers: asked, Upstream: sent})
		asked.gateway, sent.gateway = g, g
		for _, callers := range [][]string{nil, {"team"}} {
			if err := g.SetFunction(Function{FunctionName: resnet, Protocol: OpenAI, Callers: callers}); err != nil {
				t.Fatal(err)
			}
			if err := g.SetReplicas(resnet, []Replica{{ID: "a", Address: "a:80"}}); err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://gateway.example.org/v1/completions", strings.NewReader(body))
			r.RemoteAddr = "10.0.0.1:1000"
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			if want := map[bool]int{true: 404, false: 200}[callers == nil]; w.Code != want {
				t.Errorf("status %d, want %d", w.Code, want)
			}
			if asked.bytes < share.Bytes(len(body)) || sent.bytes != 0 || g.bodies.bytes != 0 || g.function(resnet).bodies.bytes != 0 {
				t.Errorf("%d bytes count while the caller is looked for, %d at the replica, %d at the end", asked.bytes, sent.bytes, g.bodies.bytes)
			}
		}
	})
	t.Run("relayed", func(t *testing.T) {
		startCluster(t, Function{Protocol: OpenAI}, 2, true, func(c *cluster) {
			other := c.members[1]
			namespace := other.function(resnet).bodies.within
			unknown, known := share.Bytes(0), share.Bytes(0)
			c.replicas(func(string) http.Handler {
				return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { unknown, known = other.bodies.bytes, namespace.bytes })
			}, "a")
			response, err := c.client.Post("http://"+other.name+":80/v1/completions", "application/json", strings.NewReader(body))
			if err != nil {
				c.Fatal(err)
			}
			response.Body.Close()
			synctest.Wait()
			if response.StatusCode != 200 || unknown != 0 || known < share.Bytes(len(body)) {
				c.Errorf("status %d; while another gateway has the request, %d bytes count for its namespace and %d for all", response.StatusCode, known, unknown)
			}
			if other.bodies.bytes != 0 || namespace.bytes != 0 {
				c.Errorf("%d and %d bytes are never released", other.bodies.bytes, namespace.bytes)
			}
		})
	})
}

// TestModelBodyWithoutRoom: a body that was searched for a model is refused, as load of its function, if the function's namespace has no room for it,
// whichever gateway is to serve it. It needs its own length of room, no more.
func TestModelBodyWithoutRoom(t *testing.T) {
	body := `{"model":"resnet","prompt":"` + strings.Repeat("x", 100_000) + `"}`
	for name, c := range map[string]struct {
		member int // 0 is the owner
		room   share.Bytes
		status int
	}{
		"owner, room for it":      {0, 150_000, 200},
		"owner, no room":          {0, 50_000, 429},
		"another, room for it":    {1, 150_000, 200},
		"another, no room for it": {1, 50_000, 429},
	} {
		t.Run(name, func(t *testing.T) {
			startCluster(t, Function{Protocol: OpenAI}, 2, true, func(w *cluster) {
				w.replicas(func(string) http.Handler { return echo(0) }, "a")
				member := w.members[c.member]
				namespace := member.function(resnet).bodies.within
				namespace.reserve(maxNamespaceBodies-c.room, maxNamespaceBodies)
				response, err := w.client.Post("http://"+member.name+":80/v1/completions", "application/json", strings.NewReader(body))
				if err != nil {
					w.Fatal(err)
				}
				response.Body.Close()
				synctest.Wait()
				if response.StatusCode != c.status {
					w.Errorf("status %d, want %d", response.StatusCode, c.status)
				}
				if l := member.Load(resnet); c.status == 429 && (l.Received != 1 || l.Refused != 1) {
					w.Errorf("%+v, want one that is refused", l)
				}
				if member.bodies.bytes != 0 || namespace.bytes != maxNamespaceBodies-c.room {
					w.Errorf("%d bytes for all and %d for the namespace are never released", member.bodies.bytes, namespace.bytes-maxNamespaceBodies+c.room)
				}
			})
		})
	}
}

// TestDescribedModel checks that a client can ask for one model, as models.retrieve of OpenAI's clients does.
func TestDescribedModel(t *testing.T) {
	start(t, Function{Protocol: OpenAI}, func(w *world) {
		for _, f := range []Function{{FunctionName: FunctionName{"team", "bert"}, Protocol: OpenAI}, {FunctionName: FunctionName{"default", "plain"}}} {
			if err := w.gateway.SetFunction(f); err != nil {
				w.Fatal(err)
			}
		}
		for path, want := range map[string]string{
			"/v1/models/resnet":         `{"id":"resnet","object":"model","created":0,"owned_by":"default"}`,
			"/v1/models/resnet.default": `{"id":"resnet","object":"model","created":0,"owned_by":"default"}`,
			"/v1/models/bert.team":      `{"id":"bert.team","object":"model","created":0,"owned_by":"team"}`,
			"/v1/models/plain":          "",
			"/v1/models/bert":           "",
			"/v1/models/":               "",
		} {
			response, err := w.client.Get("http://gateway:80" + path)
			if err != nil {
				w.Fatal(err)
			}
			body, _ := io.ReadAll(response.Body)
			response.Body.Close()
			if want == "" && (response.StatusCode != 404 || response.Header.Get(reasonHeader) != reasonUnknown || !strings.Contains(string(body), `"message"`)) ||
				want != "" && (response.StatusCode != 200 || string(body) != want) {
				w.Errorf("%s: %d %s, want %s", path, response.StatusCode, body, want)
			}
		}
	})
}

// TestModelBodiesFull: requests whose model is looked for in their bodies are refused while others, of senders that are not known yet, have all the
// room of 256 MiB. Those end after 30 s. Requests whose host names the function have room of their own.
func TestModelBodiesFull(t *testing.T) {
	start(t, Function{Protocol: OpenAI}, func(w *world) {
		w.replicas(echo(0), 1, 0, "a")
		const slow, room, end = 10, 256 * share.MiB, 30 * time.Second
		all := &w.gateway.bodies
		all.reserve(room-slow*firstRoom, room)
		for range slow {
			c, err := w.network.dial(w.Context(), "", "gateway:80")
			if err != nil {
				w.Fatal(err)
			}
			defer c.Close()
			const begin = "POST /v1/completions HTTP/1.1\r\nHost: other.example.com\r\nContent-Length: 100000\r\n\r\nx"
			if _, err := io.WriteString(c, begin); err != nil {
				w.Fatal(err)
			}
		}
		synctest.Wait()
		const body = `{"model":"resnet"}`
		if a := w.chat(body); a.status != 429 {
			w.Errorf("while there is no room: %+v", a)
		}
		if a := w.ask(w.Context(), body); a.status != 200 {
			w.Errorf("while there is no room, a request whose host names the function: %+v", a)
		}
		time.Sleep(end)
		synctest.Wait() // until they have ended: this test wakes at the same time
		if a := w.chat(body); a.status != 200 {
			w.Errorf("after %v: %+v", end, a)
		}
	})
}
