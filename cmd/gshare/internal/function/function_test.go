package function

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// profiled is a function that leaves its share and its rate to its profile, which has measured a smaller share, too.
func profiled(shares api.ReplicaShares) *api.GPUFunction {
	f := &api.GPUFunction{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "resnet50"}}
	f.Spec.SLO.Latency, f.Spec.Protocol = "69ms", api.HTTP
	f.Spec.Template.Spec.Containers = []v1.Container{{Name: "server", Image: "server"}}
	f.Spec.ProfileRef = &api.ProfileReference{Name: "resnet50"}
	f.Spec.Scaling.Shares = shares
	f.Status.Profiled = &api.ProfileRecommendation{SM: 20, Quota: 100, Memory: "1Gi", MaxBatch: 1, RequestsPerSecond: 100,
		Smaller: []api.MeasuredShare{{SM: 10, Quota: 100, RequestsPerSecond: 40}}}
	return f
}

func podWith(sm int64, annotations map[string]string) v1.Pod {
	limits := v1.ResourceList{}
	for name, n := range map[v1.ResourceName]int64{kube.ResourceSM: sm, kube.ResourceQuota: 100, kube.ResourceMemory: 1024, kube.ResourceVGPU: 1} {
		limits[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Annotations: annotations},
		Spec:       v1.PodSpec{NodeName: "node-1", Containers: []v1.Container{{Resources: v1.ResourceRequirements{Limits: limits, Requests: limits}}}},
		Status:     v1.PodStatus{PodIP: "10.0.0.1", Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}},
	}
}

// TestRates: what replicas are said to answer is what the profile says where the specification says nothing, and of shares of several sizes the sum over the
// replicas that there are.
func TestRates(t *testing.T) {
	shared := map[string]string{kube.AnnotationResidency: `{"v":1,"residency":{"seq":2,"level":"Shared"}}`}
	drained := map[string]string{api.AnnotationDrain: "2026-01-02T15:04:05Z"}
	pods := []v1.Pod{podWith(20, nil), podWith(10, nil), podWith(10, nil), podWith(10, shared), podWith(20, drained), podWith(70, nil)}
	for shares, want := range map[api.ReplicaShares]Facts{
		api.SingleShare: {RequestsPerSecond: 100},
		api.MixedShares: {RequestsPerSecond: 100, Least: 40, Together: 180},
	} {
		t.Run(string(shares), func(t *testing.T) {
			f := profiled(shares)
			facts := factsOf(f)
			for at := range pods {
				facts.Replicas = append(facts.Replicas, replicaOf(&pods[at], time.Now()))
			}
			facts.setRates(f, pods)
			if facts.RequestsPerSecond != want.RequestsPerSecond || facts.Least != want.Least || facts.Together != want.Together {
				t.Errorf("%v, least %v, together %v; want %+v", facts.RequestsPerSecond, facts.Least, facts.Together, want)
			}
		})
	}
}

// TestParkedReplica: a parked replica neither starts nor is ready, whatever its readiness probe says.
func TestParkedReplica(t *testing.T) {
	for name, ready := range map[string]v1.ConditionStatus{"ready": v1.ConditionTrue, "not ready": v1.ConditionFalse} {
		t.Run(name, func(t *testing.T) {
			pod := podWith(20, map[string]string{kube.AnnotationResidency: `{"v":1,"residency":{"seq":2,"level":"Warm","drained":true}}`})
			pod.Status.Conditions[0].Status = ready
			if r := replicaOf(&pod, time.Now()); r.Phase != PhaseParked || r.Waits != "" {
				t.Errorf("%+v", r)
			}
		})
	}
}
