package sharing

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

var (
	podResource = schema.GroupResource{Resource: "pods"}
	errConflict = apierrors.NewConflict(podResource, "a", errors.New("pod a is already assigned"))
	errInternal = apierrors.NewInternalError(errors.New("etcd is slow"))
	errRefused  = errors.New("connect: connection refused")
)

// apiServer answers binds and gets of one pod with the listed answers, the last one repeatedly.
type apiServer struct {
	mu    sync.Mutex // guards what follows
	pod   *v1.Pod    // as stored; nil is gone
	binds []bindAnswer
	gets  []error
	calls int // of bind
}

// bindAnswer is what becomes of one request: whether it is carried out, and what the client hears.
type bindAnswer struct {
	lands bool
	err   error
}

func next[T any](answers *[]T) (out T) {
	if len(*answers) > 0 {
		out = (*answers)[0]
	}
	if len(*answers) > 1 {
		*answers = (*answers)[1:]
	}
	return out
}

func (s *apiServer) serve(h *fakeHandle) {
	h.client.PrependReactor("create", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		binding := a.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		s.calls++
		answer := next(&s.binds)
		if answer.lands {
			s.pod.Spec.NodeName = binding.Target.Name
			s.pod.Annotations = binding.Annotations
		}
		return true, binding, answer.err
	})
	h.client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := next(&s.gets); err != nil {
			return true, nil, err
		}
		if s.pod == nil {
			return true, nil, apierrors.NewNotFound(podResource, "a")
		}
		return true, s.pod.DeepCopy(), nil
	})
}

// bindCycle reserves the pod and binds it. It runs where time passes by itself.
func bindCycle(t *testing.T, s *apiServer) (*Plugin, *fwk.Status) {
	t.Helper()
	h := newHandle(newNodeInfo(gpuNode(t, "n1", 1)))
	p := newPlugin(t, h, 0)
	pod := gpuPod("a", 100, 50)
	if s.pod == nil && len(s.gets) == 0 {
		s.gets = []error{apierrors.NewNotFound(podResource, "a")}
	}
	s.serve(h)
	state := reserve(t, p, pod, "n1")
	status := p.Bind(t.Context(), state, pod, "n1")
	if !status.IsSuccess() {
		p.Unreserve(t.Context(), state, pod, "n1")
	}
	return p, status
}

func statusError(code int32) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: http.StatusText(int(code))}}
}

func TestBindOutcomes(t *testing.T) {
	landsBut := func(err error) bindAnswer { return bindAnswer{lands: true, err: err} }
	fails := func(err error) bindAnswer { return bindAnswer{err: err} }
	fine := landsBut(nil)
	elsewhere := gpuPod("a", 100, 50, on("n2"))
	otherPlacement := placed(t, gpuPod("a", 100, 50), "n1", "n1-7")
	reborn := gpuPod("a", 100, 50)
	reborn.UID = "uid-reborn"
	tests := map[string]struct {
		pod   *v1.Pod
		binds []bindAnswer
		gets  []error
		calls int
		ok    bool
	}{
		"bound":                               {pod: gpuPod("a", 100, 50), binds: []bindAnswer{fine}, calls: 1, ok: true},
		"conflict, but bound as ours":         {pod: gpuPod("a", 100, 50), binds: []bindAnswer{landsBut(errConflict)}, calls: 1, ok: true},
		"conflict, bound elsewhere":           {pod: elsewhere, binds: []bindAnswer{fails(errConflict)}, calls: 1},
		"conflict, bound here by another":     {pod: otherPlacement, binds: []bindAnswer{fails(errConflict)}, calls: 1},
		"conflict, not bound":                 {pod: gpuPod("a", 100, 50), binds: []bindAnswer{fails(errConflict)}, calls: 1},
		"pod is gone":                         {binds: []bindAnswer{fails(apierrors.NewNotFound(podResource, "a"))}, calls: 1},
		"another pod of that name":            {pod: reborn, binds: []bindAnswer{fails(errConflict)}, calls: 1},
		"another pod after a time-out":        {pod: reborn, binds: []bindAnswer{fails(errInternal)}, calls: 1},
		"server error, then bound":            {pod: gpuPod("a", 100, 50), binds: []bindAnswer{fails(errInternal), fine}, calls: 2, ok: true},
		"time-out, but the write landed":      {pod: gpuPod("a", 100, 50), binds: []bindAnswer{landsBut(context.DeadlineExceeded)}, calls: 1, ok: true},
		"time-out, lost, then conflict":       {pod: gpuPod("a", 100, 50), binds: []bindAnswer{fails(errRefused), landsBut(errConflict)}, gets: []error{errRefused, nil}, calls: 2, ok: true},
		"too many requests, then bound":       {pod: gpuPod("a", 100, 50), binds: []bindAnswer{fails(apierrors.NewTooManyRequests("wait", 1)), fine}, calls: 2, ok: true},
		"forbidden":                           {pod: gpuPod("a", 100, 50), binds: []bindAnswer{fails(apierrors.NewForbidden(podResource, "a", errRefused))}, calls: 1},
		"a webhook's own refusal":             {pod: gpuPod("a", 100, 50), binds: []bindAnswer{fails(statusError(http.StatusTeapot))}, calls: 1},
		"request too large":                   {pod: gpuPod("a", 100, 50), binds: []bindAnswer{fails(statusError(http.StatusRequestEntityTooLarge))}, calls: 1},
		"request time-out, then bound":        {pod: gpuPod("a", 100, 50), binds: []bindAnswer{fails(statusError(http.StatusRequestTimeout)), fine}, calls: 2, ok: true},
		"forbidden, and the state is unknown": {pod: gpuPod("a", 100, 50), binds: []bindAnswer{fails(apierrors.NewForbidden(podResource, "a", errRefused))}, gets: []error{errInternal, nil}, calls: 2},
	}
	refusal := fails(apierrors.NewForbidden(podResource, "a", errRefused))
	late := tests["bound"]
	late.binds = []bindAnswer{fails(context.DeadlineExceeded), refusal, landsBut(refusal.err)}
	late.calls = 3
	tests["refusal after a time-out that is carried out late"] = late
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &apiServer{pod: tt.pod.DeepCopy(), binds: tt.binds, gets: tt.gets}
				result := notBound
				if tt.ok {
					result = wasBound
				}
				before := counted(t, "gshare_scheduler_binds_total", result)
				p, status := bindCycle(t, s)
				if n := counted(t, "gshare_scheduler_binds_total", result) - before; n != 1 {
					t.Errorf("%v binds are counted as %s, want 1", n, result)
				}
				if status.IsSuccess() != tt.ok || s.calls != tt.calls {
					t.Errorf("status %v after %d binds, want success %v after %d", status, s.calls, tt.ok, tt.calls)
				}
				if held := p.ledger.Len() == 1; held != tt.ok {
					t.Errorf("assumed held: %v", held)
				}
			})
		})
	}
}

// A refusal after a lost answer counts only when the lost request cannot be under way any more.
func TestBindGivesUpOnlyWhenNothingIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		s := &apiServer{pod: gpuPod("a", 100, 50), binds: []bindAnswer{{err: context.DeadlineExceeded}, {err: statusError(http.StatusForbidden)}}}
		p, status := bindCycle(t, s)
		if took := time.Since(begin); status.IsSuccess() || took < maxRequestTime || took > 2*maxRequestTime || p.ledger.Len() != 0 {
			t.Errorf("status %v after %v, %d assumed left", status, took, p.ledger.Len())
		}
	})
}

// While nothing answers, the space stays assumed and the pod is tried again every few seconds.
func TestBindHoldsThePromiseWhileNothingAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandle(newNodeInfo(gpuNode(t, "n1", 1)))
		p := newPlugin(t, h, 0)
		pod := gpuPod("a", 100, 50)
		s := &apiServer{pod: pod.DeepCopy(), binds: []bindAnswer{{err: errRefused}}, gets: []error{errRefused}}
		s.serve(h)
		state := reserve(t, p, pod, "n1")
		done := make(chan *fwk.Status, 1)
		go func() { done <- p.Bind(t.Context(), state, pod, "n1") }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		s.mu.Lock()
		if len(done) != 0 || p.ledger.Len() != 1 || s.calls < 100 || s.calls > 200 {
			t.Errorf("returned %v, %d assumed, %d binds in ten minutes", len(done) != 0, p.ledger.Len(), s.calls)
		}
		s.binds, s.gets = []bindAnswer{{lands: true}}, []error{nil}
		s.mu.Unlock()
		if status := <-done; !status.IsSuccess() || p.ledger.Len() != 1 {
			t.Errorf("status %v, %d assumed", status, p.ledger.Len())
		}
	})
}

func TestBindEndsWithTheScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandle(newNodeInfo(gpuNode(t, "n1", 1)))
		p := newPlugin(t, h, 0)
		pod := gpuPod("a", 100, 50)
		(&apiServer{pod: pod.DeepCopy(), binds: []bindAnswer{{err: errRefused}}, gets: []error{errRefused}}).serve(h)
		state := reserve(t, p, pod, "n1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		status := p.Bind(ctx, state, pod, "n1")
		if status.Code() != fwk.Error || !errors.Is(status.AsError(), context.DeadlineExceeded) || !errors.Is(status.AsError(), errRefused) {
			t.Errorf("status %v; want both reasons", status)
		}
	})
}

func TestBindLeavesOrRefuses(t *testing.T) {
	h := newHandle(newNodeInfo(gpuNode(t, "n1", 1)))
	p := newPlugin(t, h, 0)
	plain := cpuPod("plain")
	if status := p.Bind(t.Context(), reserve(t, p, plain, "n1"), plain, "n1"); !status.IsSkip() {
		t.Errorf("no share: status %v, want it left to the next binder", status)
	}
	pod := gpuPod("a", 100, 50)
	state, _ := prefilter(t, p, pod)
	if status := p.Bind(t.Context(), state, pod, "n1"); status.Code() != fwk.Error || !strings.Contains(status.Message(), "no placement reserved") {
		t.Errorf("never reserved: status %v", status)
	}
	if status := p.Bind(t.Context(), reserve(t, p, pod, "n1"), pod, "n2"); status.Code() != fwk.Error || !strings.Contains(status.Message(), "no placement reserved") {
		t.Errorf("reserved elsewhere: status %v", status)
	}
	if status := p.Bind(t.Context(), newState(), pod, "n1"); status.Code() != fwk.Error {
		t.Errorf("without PreFilter: status %v", status)
	}
	if n := len(h.client.Actions()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestBindWritesThePlacement(t *testing.T) {
	s := &apiServer{pod: gpuPod("a", 100, 50), binds: []bindAnswer{{lands: true}}}
	p, status := bindCycle(t, s)
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	got, present, err := kube.PlacementOf(s.pod)
	want, _ := p.ledger.Get(s.pod.UID)
	if err != nil || !present || s.pod.Spec.NodeName != "n1" || got.Containers[0].VGPUs[0] != want.Containers[0].VGPUs[0] {
		t.Errorf("bound to %s with %v (%v), assumed %v", s.pod.Spec.NodeName, got, err, want)
	}
}
