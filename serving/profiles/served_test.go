package profiles

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gshare-dev/gshare/serving/controller"
)

// cached returns a pod as the manager's cache has it.
func cached(t *testing.T, p *v1.Pod) v1.Pod {
	t.Helper()
	options, err := controller.CacheOptions(client.ObjectKey{Namespace: "gshare", Name: "gateway"})
	if err != nil {
		t.Fatal(err)
	}
	for object, of := range options.ByObject {
		if _, isPod := object.(*v1.Pod); isPod && of.Transform != nil {
			kept, err := of.Transform(p.DeepCopy())
			if err != nil {
				t.Fatal(err)
			}
			return *kept.(*v1.Pod)
		}
	}
	return *p
}

// TestServed: the image of the replicas is known from what the cache keeps of them.
func TestServed(t *testing.T) {
	replica := func(image string, age time.Duration, ready v1.ConditionStatus) v1.Pod {
		return cached(t, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
			Spec:       v1.PodSpec{NodeName: "node1", Containers: []v1.Container{{Name: "server", Image: "bert"}, {Name: "logs", Image: "logs"}}},
			Status: v1.PodStatus{
				PodIP: "10.0.0.1", Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}},
				ContainerStatuses: []v1.ContainerStatus{{Name: "logs", ImageID: "logs@sha256:1"}, {Name: "server", ImageID: image}},
			},
		})
	}
	for name, test := range map[string]struct {
		replicas []v1.Pod
		want     string
	}{
		"none":         {nil, ""},
		"one":          {[]v1.Pod{replica("bert@sha256:1", time.Hour, v1.ConditionTrue)}, "bert@sha256:1"},
		"not ready":    {[]v1.Pod{replica("bert@sha256:1", time.Hour, v1.ConditionFalse)}, ""},
		"the youngest": {[]v1.Pod{replica("bert@sha256:2", time.Minute, v1.ConditionTrue), replica("bert@sha256:1", time.Hour, v1.ConditionTrue)}, "bert@sha256:2"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := served(test.replicas); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
