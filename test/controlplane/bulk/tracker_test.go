package bulk

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

func pod(name, node string, refused bool) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault, UID: types.UID(name)}}
	p.Spec.NodeName = node
	if refused {
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable}}
	}
	return p
}

// TestTracker follows a pod that first waits, is then reported unschedulable, then bound, then deleted.
func TestTracker(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	client := fake.NewClientset()
	tracker, err := NewTracker(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	reaches := func(want Progress) {
		t.Helper()
		if err := tracker.Wait(ctx, func(p Progress) bool { return p == want }); err != nil {
			t.Fatalf("want %+v, have %+v: %v", want, tracker.Progress(), err)
		}
	}
	pods := client.CoreV1().Pods(metav1.NamespaceDefault)
	check := func(_ *v1.Pod, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(pods.Create(ctx, pod("a", "", false), metav1.CreateOptions{}))
	reaches(Progress{Seen: 1})
	if tracker.Progress().Settled() {
		t.Error("a waiting pod counts as settled")
	}
	check(pods.Update(ctx, pod("a", "", true), metav1.UpdateOptions{}))
	reaches(Progress{Seen: 1, Refused: 1})
	check(pods.Update(ctx, pod("a", "n", false), metav1.UpdateOptions{}))
	reaches(Progress{Seen: 1, Bound: 1})
	if each, whole := tracker.Latencies(); len(each) != 1 || whole < 0 {
		t.Errorf("latencies are %v within %v", each, whole)
	}
	if err := pods.Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	reaches(Progress{})
}

func TestQuantile(t *testing.T) {
	sorted := []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	if p50, p99 := Quantile(sorted, 0.5), Quantile(sorted, 0.99); p50 != 6 || p99 != 10 {
		t.Errorf("p50 %d, p99 %d", p50, p99)
	}
	if Quantile(nil, 0.5) != 0 {
		t.Error("nothing has a quantile")
	}
}

func TestEach(t *testing.T) {
	var sum atomic.Int64
	err := forEach(t.Context(), 100, func(_ context.Context, i int) error { sum.Add(int64(i)); return nil })
	if err != nil || sum.Load() != 4950 {
		t.Errorf("sum %d, error %v", sum.Load(), err)
	}
}

// TestEachFails: the first failure ends the work, and is the error that is returned.
func TestEachFails(t *testing.T) {
	err := forEach(t.Context(), 1_000_000, func(_ context.Context, i int) error {
		if i == 3 {
			return fmt.Errorf("item %d", i)
		}
		return nil
	})
	if err == nil || err.Error() != "item 3" {
		t.Errorf("got %v", err)
	}
}
