package cluster_test

import (
	"context"
	"maps"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// mixedFunction is a function whose batches keep 40 % of the SMs busy. With a quarter of these SMs, a batch takes four times as long, so that of requests
// that arrive at random, far fewer than a quarter meet the objective.
const mixedFunction = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUProfile
metadata: {name: mixed}
spec:
  functionRef: {name: mixed}
  memory: 1Gi
  search: {strategy: Grid, sm: [10, 40], quota: [100]}
---
apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: mixed}
spec:
  slo: {latency: 600ms}
  protocol: OIP
  access: {namespaces: ["*"]}
  profileRef: {name: mixed}
  scaling: {shares: Mixed, window: 6s, keepShared: 1s}
  template:
    spec:
      containers:
      - {name: server, image: "` + modelImage + `", args: [--name, mixed, --batch, 1=50ms, --sm, "40", --input, "input:UINT8:1"]}
`

// TestServingMixedShares: a function has one replica with the share that its profile recommends. When the load slightly exceeds what that replica can
// answer, it also gets one with a smaller share, which is the first to go when the load falls.
func TestServingMixedShares(t *testing.T) {
	s := startServing(t)
	s.write(t, mixedFunction)
	function := func() *api.GPUFunction {
		f := &api.GPUFunction{}
		s.read(t, "default", "mixed", f)
		return f
	}
	s.wait(t, "complete", func() bool {
		p := &api.GPUProfile{}
		err := s.objects.Get(s.ctx, client.ObjectKey{Namespace: "default", Name: "mixed"}, p)
		return err == nil && meta.IsStatusConditionTrue(p.Status.Conditions, api.ConditionComplete)
	})
	s.wait(t, "the function knows", func() bool { return function().Status.Profiled != nil })
	profiled := function().Status.Profiled
	t.Logf("%+v", profiled)
	if profiled.SM != 40 || len(profiled.Smaller) != 1 || profiled.Smaller[0].SM != 10 || profiled.Smaller[0].RequestsPerSecond < 1 {
		t.Fatalf("%+v, want the larger share recommended, and the smaller one for a request a second at the least", profiled)
	}
	sms := func() map[int]int {
		found := map[int]int{}
		for _, p := range s.pods(t, "default", api.LabelFunction, "mixed") {
			placement, present, err := kube.PlacementOf(&p)
			if err == nil && present && p.DeletionTimestamp == nil {
				found[int(placement.Containers[0].VGPUs[0].Share.SMRequest)/10]++
			}
		}
		return found
	}
	under := func(rate int, what string, want map[int]int) {
		c := s.newClients(t, "mixed")
		ctx, stop := context.WithCancel(s.ctx)
		defer stop()
		c.running.Go(func() { c.send(ctx, rate) })
		took := s.wait(t, what, func() bool {
			return maps.Equal(sms(), want) && s.readyReplicas(t, api.LabelFunction, "mixed") == len(want)
		})
		stop()
		sent, failed := c.wait()
		t.Logf("%s after %.1f s, %d requests, %d not answered: their deadline would have passed", what, took.Seconds(), sent, len(failed))
	}
	under(int(profiled.RequestsPerSecond)+1, "one of each share", map[int]int{40: 1, 10: 1})
	t.Log("\n" + s.kubectl(t, "get", "fastpods,pods", "-o", "wide"))
	under(int(profiled.RequestsPerSecond)-2, "the larger one", map[int]int{40: 1})
}
