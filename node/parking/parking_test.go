package parking

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fakeServer answers like the servers of models that package parking knows, or fails like them.
type fakeServer struct {
	mu       sync.Mutex
	triton   map[string]*tritonModel // nil: it does not speak the protocol
	vllm     *bool                   // whether it sleeps; nil: it has no sleep mode
	fails    map[string]string       // by path: the body of an error 500, or "hang"
	requests []string
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, r.Method+" "+r.URL.RequestURI())
	if text, ok := f.fails[r.URL.Path]; ok {
		if text == "hang" {
			f.mu.Unlock()
			<-r.Context().Done()
			f.mu.Lock()
		}
		http.Error(w, text, http.StatusInternalServerError)
		return
	}
	answer := func(v any) { _ = json.NewEncoder(w).Encode(v) }
	escaped, change, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/v2/repository/models/"), "/")
	name, _ := url.PathUnescape(escaped)
	switch model := f.triton[name]; {
	case f.triton != nil && r.URL.Path == "/v2":
		answer(map[string]any{"extensions": []string{"classification", "model_repository", "model_repository(unload_dependents)"}})
	case f.triton != nil && r.URL.Path == "/v2/repository/index":
		all := []tritonModel{}
		for _, m := range f.triton {
			all = append(all, *m)
		}
		answer(all)
	case model != nil && change == "unload":
		model.State, model.Reason = "UNAVAILABLE", "unloaded"
	case model != nil && change == "load":
		model.State, model.Reason = "READY", ""
	case f.vllm != nil && r.URL.Path == "/is_sleeping":
		answer(map[string]bool{"is_sleeping": *f.vllm})
	case f.vllm != nil && r.Method == http.MethodPost && r.URL.Path == "/sleep" && r.URL.Query().Get("level") == "1":
		*f.vllm = true
	case f.vllm != nil && r.Method == http.MethodPost && r.URL.Path == "/wake_up":
		*f.vllm = false
	default:
		http.NotFound(w, r)
	}
}

func serve(t *testing.T, h http.Handler) Server {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return Server{strings.TrimPrefix(server.URL, "http://")}
}

func newTriton() *fakeServer {
	return &fakeServer{triton: map[string]*tritonModel{
		"a/b": {Name: "a/b", State: "READY"}, "second": {Name: "second", State: "READY"}, "unused": {Name: "unused"},
	}}
}

// TestTriton: what was loaded is unloaded, loaded again, and nothing else is; both may be repeated.
func TestTriton(t *testing.T) {
	fake := newTriton()
	s := serve(t, fake)
	states := func() string {
		return fmt.Sprint(fake.triton["a/b"].State, " ", fake.triton["second"].State, " ", fake.triton["unused"].State)
	}
	for range 2 {
		if err := Methods.Park(t.Context(), s); err != nil || states() != "UNAVAILABLE UNAVAILABLE " {
			t.Fatalf("parked: %v, %s", err, states())
		}
	}
	for range 2 {
		if err := Methods.Wake(t.Context(), s); err != nil || states() != "READY READY " {
			t.Fatalf("woken: %v, %s", err, states())
		}
	}
	if !slices.Contains(fake.requests, "POST /v2/repository/models/a%2Fb/unload") {
		t.Errorf("requests %q", fake.requests)
	}
	if m, err := Methods.Find(t.Context(), s); err != nil || m.Name() != "Triton" {
		t.Errorf("method %v, %v", m, err)
	}
}

// TestVLLM: a server with sleep mode sleeps at level 1 and wakes up; one that sleeps is not told again.
func TestVLLM(t *testing.T) {
	fake := &fakeServer{vllm: new(false)}
	s := serve(t, fake)
	for range 2 {
		if err := Methods.Park(t.Context(), s); err != nil || !*fake.vllm {
			t.Fatalf("parked: %v, sleeps %t", err, *fake.vllm)
		}
	}
	for range 2 {
		if err := Methods.Wake(t.Context(), s); err != nil || *fake.vllm {
			t.Fatalf("woken: %v, sleeps %t", err, *fake.vllm)
		}
	}
	told := slices.DeleteFunc(fake.requests, func(r string) bool { return strings.HasPrefix(r, "GET ") })
	if fmt.Sprint(told) != "[POST /sleep?level=1 POST /wake_up]" {
		t.Errorf("told %q", told)
	}
}

// TestUnsupported: of a server without any of the methods Find says why for each, it is not parked, and to wake it nothing is needed.
func TestUnsupported(t *testing.T) {
	for name, handler := range map[string]http.Handler{
		"nothing":     http.NotFoundHandler(),
		"a web page":  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }),
		"other JSON":  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{}`) }),
		"a redirect":  http.RedirectHandler("http://192.0.2.1/", http.StatusFound),
		"an old OIP":  http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"extensions":["cuda_shared_memory"]}`) }),
		"not allowed": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }),
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, handler)
			_, err := Methods.Find(t.Context(), s)
			if _, ok := errors.AsType[*UnsupportedError](err); !ok {
				t.Fatalf("error %v", err)
			}
			for _, method := range []string{"Triton", "vLLM", "Checkpoint", "Restart"} {
				if !strings.Contains(err.Error(), method+": ") {
					t.Errorf("%v says nothing of %s", err, method)
				}
			}
			if err := Methods.Park(t.Context(), s); err == nil {
				t.Error("it is parked")
			}
			if err := Methods.Wake(t.Context(), s); err != nil {
				t.Errorf("it is not woken: %v", err)
			}
		})
	}
}

// TestFails: a server that fails, hangs or says too much is not taken for parked or awake.
func TestFails(t *testing.T) {
	for name, c := range map[string]struct {
		fake *fakeServer
		path string
		text string
		wake bool // it fails when it is woken
		want string
	}{
		"unload":       {newTriton(), "/v2/repository/models/second/unload", "explicit model load / unload is not allowed", false, `unload model "second": status 500: explicit`},
		"load":         {newTriton(), "/v2/repository/models/second/load", "out of memory\x00", true, `load model "second": status 500: out of memory`},
		"index":        {newTriton(), "/v2/repository/index", "", false, "Triton: status 500"},
		"unload hangs": {newTriton(), "/v2/repository/models/second/unload", "hang", false, "deadline"},
		"sleep":        {&fakeServer{vllm: new(false)}, "/sleep", "EngineDeadError", false, "vLLM: status 500: EngineDeadError"},
		"wake up":      {&fakeServer{vllm: new(false)}, "/wake_up", "CUDA error", true, "vLLM: status 500: CUDA error"},
		"dead engine":  {&fakeServer{vllm: new(false)}, "/is_sleeping", "EngineDeadError", false, "EngineDeadError"},
		"no model":     {&fakeServer{triton: map[string]*tritonModel{"unused": {Name: "unused"}}}, "", "", false, "no model is loaded"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, c.fake)
			do := Methods.Park
			if c.wake {
				if err := Methods.Park(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				do = Methods.Wake
			}
			limit := time.Minute
			if c.text == "hang" {
				limit = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			c.fake.mu.Lock()
			c.fake.fails = map[string]string{c.path: c.text}
			c.fake.mu.Unlock()
			if err := do(ctx, s); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	many := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2" {
			fmt.Fprint(w, `{"extensions":["model_repository"]}`)
			return
		}
		fmt.Fprint(w, strings.Repeat(" ", maxAnswer+1))
	})
	if err := Methods.Park(t.Context(), serve(t, many)); err == nil || !strings.Contains(err.Error(), "more than 65536 bytes") {
		t.Errorf("error %v", err)
	}
	if _, err := Methods.Find(t.Context(), Server{"127.0.0.1:1"}); err == nil {
		t.Error("a server that is not there has a method")
	} else if _, unsupported := errors.AsType[*UnsupportedError](err); unsupported {
		t.Errorf("a server that is not there supports none for good: %v", err)
	}
}
