package cluster_test

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// requestedFunction is a function of protocol HTTP that specifies the request to measure it with, whose body is in a ConfigMap, and a profile that bisects.
// Its server is no faster with more than 20 % of the SMs.
const requestedFunction = `apiVersion: v1
kind: ConfigMap
metadata: {name: samples, namespace: default}
data: {row.json: '{"inputs": [{"name": "input", "datatype": "UINT8", "shape": [1, 1], "data": [1]}]}'}
---
apiVersion: serving.gshare.dev/v1alpha1
kind: GPUProfile
metadata: {name: resnet50}
spec:
  functionRef: {name: resnet50}
  memory: 1Gi
  search: {strategy: Bisection, step: 20}
---
apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: resnet50}
spec:
  slo: {latency: 1s}
  access: {namespaces: ["*"]}
  request: {path: /v2/models/resnet50/infer, bodyFrom: {configMap: samples, key: row.json}}
  template:
    spec:
      containers:
      - {name: server, image: "` + modelImage + `", args: [--name, resnet50, --batch, 1=50ms, --sm, "20", --input, "input:UINT8:1"], resources: {requests: {cpu: 100m}}}
`

// TestServingBisection: a function whose server does not speak OIP is measured with the request that it specifies, for the fewest SMs with which it reaches
// most of its highest rate, and for the fewest with which it reaches all of it. The function gets these as its request and limit, and so does a pod that asks
// for them.
func TestServingBisection(t *testing.T) {
	s := startServing(t)
	s.write(t, requestedFunction)
	p := &api.GPUProfile{}
	err := utilwait.PollUntilContextTimeout(s.ctx, time.Second, 7*time.Minute, true, func(context.Context) (bool, error) {
		err := s.objects.Get(s.ctx, client.ObjectKey{Namespace: "default", Name: "resnet50"}, p)
		return err == nil && meta.IsStatusConditionTrue(p.Status.Conditions, api.ConditionComplete), err
	})
	if err != nil {
		t.Fatalf("%v: %+v", err, p.Status)
	}
	t.Log("\n" + s.kubectl(t, "get", "gpuprofiles", "-o", "wide"))
	for _, point := range p.Status.Points {
		t.Logf("%+v", point)
		if part := point.GPUTimePercent; point.SM < 100 && (part == nil || *part == 0) {
			t.Errorf("%+v: part of the time %v", point, part)
		}
	}
	best := p.Status.Recommended
	if best == nil || best.SMLimit < best.SM || best.Memory != "1Gi" || len(p.Status.Points) > 5 {
		t.Fatalf("%+v of %+v", best, p.Status.Conditions)
	}
	rates := map[int64]float64{}
	for _, point := range p.Status.Points {
		rates[point.SM] = point.RequestsPerSecond
	}
	if rates[100] == 0 || rates[best.SM] < 0.78*rates[100] || rates[best.SMLimit] < 0.98*rates[100] { // a busy machine is slow on any share
		t.Errorf("%+v of %v requests a second", best, rates)
	}
	s.wait(t, "the function knows", func() bool { return s.function(t).Status.Profiled != nil })
	if err := s.ask(t, "resnet50"); err != nil {
		t.Fatal(err)
	}
	s.wait(t, "the function has its share", func() bool {
		for _, pod := range s.pods(t, "default", api.LabelFunction, "resnet50") {
			placement, present, err := kube.PlacementOf(&pod)
			if err != nil || !present {
				continue
			}
			if got := placement.Containers[0].VGPUs[0].Share; int64(got.SMRequest) == 10*best.SM && int64(got.SMLimit) == 10*min(best.SMLimit, best.SM*3/2) {
				return true
			}
		}
		return false
	})
	s.kubectl(t, "delete", "gpufunction", "resnet50")
	s.create(s.ctx, t, elasticPod("elastic", share.BestEffort, best.SM, best.SMLimit, []string{"true"}))
	s.wait(t, "a pod with both", func() bool {
		pod := &v1.Pod{}
		if err := s.objects.Get(s.ctx, client.ObjectKey{Namespace: "default", Name: "elastic"}, pod); err != nil {
			t.Fatal(err)
		}
		placement, present, err := kube.PlacementOf(pod)
		return err == nil && present && int64(placement.Containers[0].VGPUs[0].Share.SMRequest) == 10*best.SM && int64(placement.Containers[0].VGPUs[0].Share.SMLimit) == 10*best.SMLimit
	})
}
