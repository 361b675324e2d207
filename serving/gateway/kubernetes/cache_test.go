package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// apiServer answers lists and watches of functions and pods. A watch gets all changes, including those before it began, so a client that starts
// another watch misses none.
type apiServer struct {
	t *testing.T

	mu      sync.Mutex
	objects map[string][]runtime.Object // by resource, without the changes
	changes map[string][]metav1.WatchEvent
	changed chan struct{} // closed at the next change
	queries []string
}

// change adds a change to the watches of a resource.
func (s *apiServer) change(resource string, e metav1.WatchEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes[resource] = append(s.changes[resource], e)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	s.mu.Lock()
	s.queries = append(s.queries, r.URL.Path+"?labelSelector="+r.URL.Query().Get("labelSelector"))
	objects, known := s.objects[resource]
	s.mu.Unlock()
	if !known {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if r.URL.Query().Get("watch") == "" {
		s.write(w, map[string]any{"metadata": metav1.ListMeta{ResourceVersion: "1"}, "items": objects})
		return
	}
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, o := range objects {
			s.write(w, event("ADDED", o))
		}
		s.write(w, event("BOOKMARK", &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}))
	}
	for sent := 0; ; {
		s.mu.Lock()
		changes, changed := s.changes[resource], s.changed
		s.mu.Unlock()
		for ; sent < len(changes); sent++ {
			s.write(w, changes[sent])
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

func (s *apiServer) write(w http.ResponseWriter, value any) {
	if err := json.NewEncoder(w).Encode(value); err != nil {
		s.t.Error(err)
	}
}

func event(kind string, object runtime.Object) metav1.WatchEvent {
	return metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Object: object}}
}

// ofAPIServer completes an object to one as an API server sends it.
func ofAPIServer[O interface {
	runtime.Object
	metav1.Object
}](object O, version string) O {
	switch o := any(object).(type) {
	case *v1.Pod:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	case *api.FaSTPod:
		o.TypeMeta = metav1.TypeMeta{APIVersion: api.APIVersion, Kind: api.FaSTPodKind}
	case *api.GPUFunction:
		o.TypeMeta = metav1.TypeMeta{APIVersion: api.APIVersion, Kind: api.Kind}
	}
	object.SetResourceVersion(version)
	object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "test"}})
	return object
}

// lockedText returns the state of a gateway while informers may be changing it.
func lockedText(f *Functions, g *fakeGateway) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return g.text()
}

// TestCache watches an API server that later goes away.
func TestCache(t *testing.T) {
	s := &apiServer{
		t: t, changes: map[string][]metav1.WatchEvent{}, changed: make(chan struct{}),
		objects: map[string][]runtime.Object{"pods": {ofAPIServer(newPod("a"), "1")}, "gpufunctions": {ofAPIServer(newFunction(), "1")}, "fastpods": {ofAPIServer(newFastPod(), "1")}},
	}
	server := httptest.NewServer(s)
	defer server.Close()
	g, f := newTest()
	f.DeleteFastPod(types.NamespacedName{Namespace: chat.Namespace, Name: "chat-1"}) // so that it has to be read from the API server
	c, err := NewCache(&rest.Config{Host: server.URL}, f, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if c.Synced() {
		t.Error("synced before it runs")
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	expect := func(what, want string) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if got := lockedText(f, g); got == want && c.Synced() {
				return
			} else if time.Now().After(deadline) {
				t.Fatalf("%s: %q, want %q", what, got, want)
			}
		}
	}
	const a, b = " a=10.0.0.1:90/Hot/4", " b=10.0.0.1:90/Hot/4"
	expect("at first", "chat slo=200ms HTTP batch=1:"+a)
	s.change("pods", event("ADDED", ofAPIServer(newPod("b"), "2")))
	expect("with another pod", "chat slo=200ms HTTP batch=1:"+a+b)
	s.change("pods", event("MODIFIED", ofAPIServer(newPod("b", drain), "3")))
	expect("with a pod to be drained", "chat slo=200ms HTTP batch=1:"+a+" drained [b]")
	s.change("pods", event("DELETED", ofAPIServer(newPod("b", drain), "4")))
	expect("without the other pod", "chat slo=200ms HTTP batch=1:"+a)
	s.change("gpufunctions", event("MODIFIED", ofAPIServer(newFunction(func(f *api.GPUFunction) { f.Spec.SLO.Latency = "1s" }), "5")))
	expect("with another objective", "chat slo=1s HTTP batch=1:"+a)

	s.mu.Lock()
	for _, q := range s.queries {
		if q != "/api/v1/pods?labelSelector=serving.gshare.dev/function" && q != "/apis/serving.gshare.dev/v1alpha1/gpufunctions?labelSelector=" &&
			q != "/apis/serving.gshare.dev/v1alpha1/fastpods?labelSelector=" {
			t.Errorf("the API server was asked for %s", q)
		}
	}
	s.queries = nil
	clear(s.objects) // it only returns errors from now on
	clear(s.changes)
	s.mu.Unlock()
	server.CloseClientConnections()
	expectQueries(t, s, 3)
	expect("without an API server", "chat slo=1s HTTP batch=1:"+a)

	s.mu.Lock()
	s.objects["pods"] = []runtime.Object{ofAPIServer(newPod("c"), "9")}
	s.objects["gpufunctions"], s.objects["fastpods"] = nil, nil
	s.mu.Unlock()
	expect("when all but a pod has been deleted meanwhile", "")
}

// expectQueries waits until the API server has been queried a number of times.
func expectQueries(t *testing.T, s *apiServer, want int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		n := len(s.queries)
		s.mu.Unlock()
		if n >= want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the API server was asked %d times, want %d", n, want)
		}
	}
}

// inParts gives a pod what AtOnce reads.
func inParts(p *v1.Pod) { p.Annotations[api.AnnotationAtOnce] = "3" }

// gated gives a pod what OnSilentNode reads.
func gated(p *v1.Pod) {
	p.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "example.com/registered"}}
	p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.ContainersReady, Status: v1.ConditionTrue},
		v1.PodCondition{Type: "example.com/registered", Status: v1.ConditionTrue})
}

func TestSlimObjects(t *testing.T) {
	full := ofAPIServer(newPod("a", drain, inParts, wanted(residency.Hot), reached(residency.Shared), terminating, func(p *v1.Pod) {
		p.Labels["app"], p.Annotations["note"] = "chat", "long"
		p.Spec.NodeName = "node"
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
	}, gated), "7")
	object, err := slimPod(full)
	if err != nil {
		t.Fatal(err)
	}
	want := newPod("a", drain, inParts, wanted(residency.Hot), reached(residency.Shared), gated)
	want.DeletionTimestamp, want.ResourceVersion, want.TypeMeta = full.DeletionTimestamp, "7", full.TypeMeta
	if got, want := fmt.Sprint(object), fmt.Sprint(want); got != want {
		t.Errorf("kept %s, want %s", got, want)
	}
	again, err := slimPod(object) // informers may transform an object twice
	if err != nil || fmt.Sprint(again) != fmt.Sprint(object) {
		t.Errorf("the second time %v, error %v", again, err)
	}
	owned, err := slimFastPod(ofAPIServer(newFastPod(func(fp *api.FaSTPod) { fp.Spec.Share.Memory = "1Gi" }), "7"))
	if fp := owned.(*api.FaSTPod); err != nil || fp.Spec.Share.Memory != "" || fp.UID != "fp" || len(fp.OwnerReferences) != 1 {
		t.Errorf("kept %v, error %v", owned, err)
	}
	function, err := slimFunction(ofAPIServer(newFunction(), "7"))
	if err != nil || function.(*api.GPUFunction).ManagedFields != nil || function.(*api.GPUFunction).Spec.SLO.Latency != "200ms" {
		t.Errorf("kept %v, error %v", function, err)
	}
}
