package deviceplugin

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/gshare-dev/gshare/node/cdi"
	"github.com/gshare-dev/gshare/node/deviceid"
)

// fakeAgent is the agent as a proxy sees it. A call for which it is away fails at once, as on a socket that nobody listens on.
type fakeAgent struct {
	api.DevicePluginClient
	mu     sync.Mutex // guards the following
	away   bool
	hangs  bool          // calls end with their contexts
	refuse error         // of PreStart
	dies   time.Duration // after which the next PreStart ends with the agent; 0: it does not
	calls  []string
}

func (a *fakeAgent) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

// answer returns the error of a call and records the call if the agent has received it.
func (a *fakeAgent) answer(ctx context.Context, call string) error {
	a.mu.Lock()
	away, hangs := a.away, a.hangs
	if !away && !hangs {
		a.calls = append(a.calls, call)
	}
	a.mu.Unlock()
	switch {
	case hangs:
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	case away:
		return status.Error(codes.Unavailable, "connection refused")
	}
	return nil
}

func (a *fakeAgent) Allocate(ctx context.Context, r *api.AllocateRequest, _ ...grpc.CallOption) (*api.AllocateResponse, error) {
	call := "allocate"
	for _, c := range r.ContainerRequests {
		call += " " + strings.Join(c.DevicesIds, "+")
	}
	return &api.AllocateResponse{}, a.answer(ctx, call)
}

func (a *fakeAgent) PreStartContainer(ctx context.Context, r *api.PreStartContainerRequest, _ ...grpc.CallOption) (*api.PreStartContainerResponse, error) {
	if err := a.answer(ctx, "start "+strings.Join(r.DevicesIds, "+")); err != nil {
		return nil, err
	}
	a.mu.Lock()
	dies, refuse := a.dies, a.refuse
	a.dies = 0
	a.mu.Unlock()
	if dies > 0 {
		time.Sleep(dies)
		return nil, status.Error(codes.Unavailable, "error reading from server: EOF")
	}
	return &api.PreStartContainerResponse{}, refuse
}

func newTestProxy(t *testing.T, a *fakeAgent) *Proxy {
	f := NewProxy(ProxyOptions{CDI: cdi.Directory(t.TempDir()), Log: slog.New(slog.DiscardHandler)})
	f.agent = a
	return f
}

func within(t *testing.T, began time.Time, least, most time.Duration) {
	t.Helper()
	if took := time.Since(began); took < least || took > most {
		t.Errorf("it took %v, want %v to %v", took, least, most)
	}
}

// scrape returns the proxy's metrics.
func scrape(t *testing.T, f *Proxy) string {
	w := httptest.NewRecorder()
	f.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Error(w.Code)
	}
	return w.Body.String()
}

// TestPreStartWaits: a container waits for an agent that is away, and starts when it is back. Metrics count it.
func TestPreStartWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{away: true}
		f := newTestProxy(t, a)
		began := time.Now()
		time.AfterFunc(20*time.Second, func() {
			if text := scrape(t, f); !strings.Contains(text, "gshare_proxy_waiting 1\n") {
				t.Error(text)
			}
			a.set(func() { a.away = false })
		})
		if err := f.PreStart(t.Context(), []string{"g0-0"}); err != nil {
			t.Error(err)
		}
		within(t, began, 20*time.Second, 20*time.Second+reconnectEvery)
		if text := scrape(t, f); !strings.Contains(text, `gshare_proxy_wait_seconds_bucket{le="28"} 1`) || !strings.Contains(text, `{le="10"} 0`) ||
			!strings.Contains(text, "gshare_proxy_waiting 0\n") {
			t.Error(text)
		}
	})
}

// TestPreStartGivesUp: the wait ends before the kubelet's does, with a text that says what is missing, if the agent is away or hangs.
func TestPreStartGivesUp(t *testing.T) {
	for name, a := range map[string]*fakeAgent{"away": {away: true}, "hung": {hangs: true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), api.KubeletPreStartContainerRPCTimeoutInSecs*time.Second)
				defer cancel()
				began := time.Now()
				err := newTestProxy(t, a).PreStart(ctx, []string{"g0-0"})
				if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "agent of this node has not answered within 28s") || ctx.Err() != nil {
					t.Errorf("%v, context %v", err, ctx.Err())
				}
				within(t, began, patience, patience)
			})
		})
	}
}

// TestPreStartRepeats: an agent that dies while it serves a start loses nothing: the next agent is asked.
func TestPreStartRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{dies: 3 * time.Second}
		f := newTestProxy(t, a)
		began := time.Now()
		if err := f.PreStart(t.Context(), []string{"g0-0"}); err != nil {
			t.Error(err)
		}
		within(t, began, 3*time.Second, 3*time.Second+reconnectEvery)
		if len(a.calls) != 2 {
			t.Errorf("calls %v, want two starts", a.calls)
		}
	})
}

// TestPreStartRefusal: what the agent refuses is refused at once, and in its words.
func TestPreStartRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{refuse: status.Error(codes.Unknown, "GPUShareDoesNotFit")}
		began := time.Now()
		if err := newTestProxy(t, a).PreStart(t.Context(), []string{"g0-0"}); !errors.Is(err, a.refuse) {
			t.Error(err)
		}
		within(t, began, 0, 0)
	})
}

// TestAllocateNeverWaits: Allocate answers at once and removes the CDI file of the last owner, whatever the agent does.
func TestAllocateNeverWaits(t *testing.T) {
	for name, a := range map[string]*fakeAgent{"away": {away: true}, "hung": {hangs: true}, "there": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newTestProxy(t, a)
				key := deviceid.Key([]string{"g0-0", "g1-0"})
				old := filepath.Join(string(f.CDI), "gshare.dev-grant-"+key+".json")
				if err := os.WriteFile(old, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				if name := f.Allocate([]string{"g1-0", "g0-0"}); name != cdi.Name(key) {
					t.Errorf("the CDI device is %s", name)
				}
				within(t, began, 0, 0)
				if _, err := os.Stat(old); !os.IsNotExist(err) {
					t.Errorf("the old CDI file: %v", err)
				}
				time.Sleep(2 * tellPatience) // in the background the agent is told
			})
		})
	}
}

// TestAllocateIsToldFirst: no start reaches an agent before each Allocate that the proxy has answered, and each is told once.
func TestAllocateIsToldFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{away: true}
		f := newTestProxy(t, a)
		f.Allocate([]string{"g0-0"})
		synctest.Wait() // the agent could not be told
		f.Allocate([]string{"g0-1", "g0-2"})
		for range 100 {
			f.Allocate([]string{"g0-0"}) // pods that come and go while the agent is away take no more room
		}
		started := make(chan error)
		go func() { started <- f.PreStart(t.Context(), []string{"g0-0"}) }()
		time.Sleep(time.Second)
		a.set(func() { a.away = false })
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		if err := f.PreStart(t.Context(), []string{"g0-1", "g0-2"}); err != nil {
			t.Fatal(err)
		}
		want := []string{"allocate g0-0 g0-1+g0-2", "start g0-0", "start g0-1+g0-2"}
		if !slices.Equal(a.calls, want) {
			t.Errorf("calls %q, want %q", a.calls, want)
		}
	})
}

// TestPrefer: the proxy chooses without the agent.
func TestPrefer(t *testing.T) {
	f := newTestProxy(t, nil)
	if got := f.Prefer(t.Context(), []string{"g0-0", "g0-1", "g1-0"}, []string{"g0-1"}, 2); !slices.Equal(got, []string{"g0-1", "g0-0"}) {
		t.Errorf("preferred %v", got)
	}
}
