package bulk

import (
	"context"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// Tracker watches all pods and records when each was first seen, and when it was first seen bound.
type Tracker struct {
	mu      sync.Mutex // guards the fields below
	pods    map[types.UID]*podState
	bound   int
	refused int
	changed chan struct{} // closed and replaced at every change
	seen    time.Time     // last change
}

type podState struct {
	created, bound time.Time
	refused        bool
}

// Progress counts the pods that exist, those that are bound, and those reported unschedulable.
type Progress struct {
	Seen    int // pods that exist
	Bound   int
	Refused int // unbound, and reported unschedulable
}

// Settled reports whether every pod is bound or reported unschedulable.
func (p Progress) Settled() bool { return p.Bound+p.Refused == p.Seen }

// NewTracker returns a Tracker that watches all pods until the context ends.
func NewTracker(ctx context.Context, c kubernetes.Interface) (*Tracker, error) {
	t := &Tracker{pods: map[types.UID]*podState{}, changed: make(chan struct{})}
	factory := informers.NewSharedInformerFactoryWithOptions(c, 0, informers.WithTransform(dropManagedFields))
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { t.update(obj.(*v1.Pod)) },
		UpdateFunc: func(_, obj any) { t.update(obj.(*v1.Pod)) },
		DeleteFunc: t.forget,
	})
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return t, ctx.Err()
}

// dropManagedFields removes the managed fields of a pod before it is cached, to save memory.
func dropManagedFields(obj any) (any, error) {
	if pod, ok := obj.(*v1.Pod); ok {
		pod.ManagedFields = nil
	}
	return obj, nil
}

func (t *Tracker) update(pod *v1.Pod) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.pods[pod.UID]
	if f == nil {
		f = &podState{created: now}
		t.pods[pod.UID] = f
	}
	if pod.Spec.NodeName != "" && f.bound.IsZero() {
		f.bound = now
		t.bound++
	}
	t.setRefused(f, pod.Spec.NodeName == "" && unschedulable(pod))
	t.signal(now)
}

func (t *Tracker) setRefused(f *podState, refused bool) {
	if f.refused == refused {
		return
	}
	f.refused = refused
	if refused {
		t.refused++
	} else {
		t.refused--
	}
}

func unschedulable(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable
	})
}

func (t *Tracker) forget(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if f := t.pods[pod.UID]; f != nil {
		t.setRefused(f, false)
		if !f.bound.IsZero() {
			t.bound--
		}
		delete(t.pods, pod.UID)
	}
	t.signal(time.Now())
}

func (t *Tracker) signal(now time.Time) {
	t.seen = now
	close(t.changed)
	t.changed = make(chan struct{})
}

// Progress returns the current numbers of existing, bound and unschedulable pods.
func (t *Tracker) Progress() Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.progress()
}

func (t *Tracker) progress() Progress {
	return Progress{Seen: len(t.pods), Bound: t.bound, Refused: t.refused}
}

// Wait blocks until the condition holds, or returns the context's error. It evaluates the condition at every change of a pod.
func (t *Tracker) Wait(ctx context.Context, done func(Progress) bool) error {
	for {
		t.mu.Lock()
		now, changed := t.progress(), t.changed
		t.mu.Unlock()
		if done(now) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Latencies returns, in ascending order, how long each bound pod waited from the event of its creation to the event that showed its node,
// and the time from the first creation to the last binding.
func (t *Tracker) Latencies() (each []time.Duration, whole time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var first, last time.Time
	for _, f := range t.pods {
		if first.IsZero() || f.created.Before(first) {
			first = f.created
		}
		if f.bound.IsZero() {
			continue
		}
		each = append(each, f.bound.Sub(f.created))
		if f.bound.After(last) {
			last = f.bound
		}
	}
	slices.Sort(each)
	if len(each) == 0 {
		return nil, 0
	}
	return each, last.Sub(first)
}

// Quantile returns the p-quantile of durations in ascending order, with p from 0 to 1; it returns zero for no durations.
func Quantile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}
