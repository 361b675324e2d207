package controller

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestPodChanges: many changes of a function's pods lead to a single reconciliation of their FaSTPod a little later. A FaSTPod that is creating pods is
// reconciled at once.
func TestPodChanges(t *testing.T) {
	ofFunction := func() *v1.Pod { return functionPod(fastPodOf(function(t, nil)), "bert-1", 1) }
	alone := fastPod(1, 24)
	stranger := ofFunction()
	stranger.OwnerReferences[0].Kind = "ReplicaSet"
	for name, test := range map[string]struct {
		pod        *v1.Pod
		now, later int // reconciliations: at once, and after countPause
	}{
		"pod of a function":      {ofFunction(), 0, 1},
		"pod of a FaSTPod alone": {standalonePod(alone, 1), 1, 0},
		"pod of somebody else":   {stranger, 0, 0},
		"pod of nobody":          {&v1.Pod{}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
				defer q.ShutDown()
				looks := func() int {
					synctest.Wait()
					n := 0
					for ; q.Len() > 0; n++ {
						request, _ := q.Get()
						if request.Namespace != test.pod.Namespace {
							t.Errorf("looks at %v", request)
						}
						q.Done(request)
					}
					return n
				}
				podChanges{}.Create(t.Context(), event.CreateEvent{Object: test.pod}, q)
				for range 5 {
					podChanges{}.Update(t.Context(), event.UpdateEvent{ObjectOld: test.pod, ObjectNew: test.pod}, q)
				}
				if n := looks(); n != test.now {
					t.Errorf("%d looks at once, want %d", n, test.now)
				}
				time.Sleep(countPause)
				if n := looks(); n != test.later {
					t.Errorf("%d looks later, want %d", n, test.later)
				}
			})
		})
	}
}
