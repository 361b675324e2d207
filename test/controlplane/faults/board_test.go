package faults

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// board holds the latest state of all pods, as seen by a watch.
type board struct {
	mu      sync.Mutex // guards the fields below
	pods    pods
	places  map[types.UID][]place // every place where a pod was seen, in order
	changed chan struct{}         // closed and replaced at every change
}

// pods maps namespace/name to the pod.
type pods map[string]*v1.Pod

// place is what a pod is bound to: its node, and its placement annotation.
type place struct{ node, placement string }

func newBoard(ctx context.Context, c kubernetes.Interface) (*board, error) {
	b := &board{pods: pods{}, places: map[types.UID][]place{}, changed: make(chan struct{})}
	factory := informers.NewSharedInformerFactory(c, 0)
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { b.see(obj.(*v1.Pod)) },
		UpdateFunc: func(_, obj any) { b.see(obj.(*v1.Pod)) },
		DeleteFunc: b.forget,
	})
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return b, ctx.Err()
}

func (b *board) see(pod *v1.Pod) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pods[key(pod)] = pod
	if pod.Spec.NodeName != "" {
		at := place{pod.Spec.NodeName, pod.Annotations[kube.AnnotationPlacement]}
		if seen := b.places[pod.UID]; len(seen) == 0 || seen[len(seen)-1] != at {
			b.places[pod.UID] = append(seen, at)
		}
	}
	b.signal()
}

func (b *board) forget(obj any) {
	if gone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = gone.Obj
	}
	pod, ok := obj.(*v1.Pod)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.pods[key(pod)]; known != nil && known.UID == pod.UID {
		delete(b.pods, key(pod))
	}
	delete(b.places, pod.UID)
	b.signal()
}

func (b *board) signal() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// wait blocks until the condition holds, which it checks at every change. The condition must not keep the map.
func (b *board) wait(ctx context.Context, holds func(pods) bool) error {
	for {
		b.mu.Lock()
		done, changed := holds(b.pods), b.changed
		b.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// waitAtMost reports whether the condition became true within the limit.
func (b *board) waitAtMost(ctx context.Context, limit time.Duration, holds func(pods) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return b.wait(ctx, holds) == nil
}

// placesOf returns the places at which a pod was seen.
func (b *board) placesOf(uid types.UID) []place {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.places[uid])
}

// unbound returns the pods without a node, by name.
func (p pods) unbound() []string {
	return slices.Sorted(maps.Keys(p.where(func(pod *v1.Pod) bool { return pod.Spec.NodeName == "" })))
}

func (p pods) where(holds func(*v1.Pod) bool) pods {
	out := maps.Clone(p)
	maps.DeleteFunc(out, func(_ string, pod *v1.Pod) bool { return !holds(pod) })
	return out
}

func (p pods) bound() int { return len(p) - len(p.unbound()) }

func key(pod *v1.Pod) string {
	if pod.Namespace == "" {
		return "default/" + pod.Name
	}
	return pod.Namespace + "/" + pod.Name
}

// refused reports whether the scheduler has reported the pod unschedulable.
func refused(pod *v1.Pod) bool {
	return pod.Spec.NodeName == "" && slices.ContainsFunc(pod.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1.PodReasonUnschedulable
	})
}
