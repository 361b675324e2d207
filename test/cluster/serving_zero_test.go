package cluster_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// firstPod returns a channel that gets the time at which the first pod of a function is seen.
func (s *served) firstPod(t *testing.T, function string) <-chan time.Time {
	t.Helper()
	w, err := s.Client().CoreV1().Pods("default").Watch(s.ctx, metav1.ListOptions{LabelSelector: api.LabelFunction + "=" + function})
	if err != nil {
		t.Fatal(err)
	}
	created := make(chan time.Time, 1)
	go func() {
		defer w.Stop()
		defer close(created) // also if the watch ends early
		for e := range w.ResultChan() {
			if e.Type == watch.Added {
				created <- time.Now()
				return
			}
		}
	}()
	return created
}

// withoutGateway returns how long a pod like a replica takes from its creation until it is Ready, without a function and a gateway.
func (s *served) withoutGateway(t *testing.T, replica *v1.Pod) time.Duration {
	t.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "without-gateway"}, Spec: *replica.Spec.DeepCopy()}
	p.Spec.NodeName = ""
	began := time.Now()
	if err := s.objects.Create(s.ctx, p); err != nil {
		t.Fatal(err)
	}
	is := func(want bool) func() bool {
		return func() bool {
			err := s.objects.Get(s.ctx, client.ObjectKeyFromObject(p), p)
			_, ready := api.Address(p)
			return (err == nil && ready) == want && (want || err != nil)
		}
	}
	s.wait(t, "ready without a gateway", is(true))
	took := time.Since(began)
	if err := s.objects.Delete(s.ctx, p, client.GracePeriodSeconds(1)); err != nil {
		t.Fatal(err)
	}
	s.wait(t, "gone", is(false))
	return took
}
