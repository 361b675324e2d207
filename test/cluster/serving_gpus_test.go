package cluster_test

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// twoGPUsFunction has two GPUs for each replica, as many as a node has.
const twoGPUsFunction = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: two-gpus}
spec:
  slo: {latency: 10s}
  access: {namespaces: ["*"]}
  resources: {share: {gpus: 2, sm: 100, memory: 70Gi}}
  scaling: {minReplicas: 1, maxReplicas: 1, requestsPerSecond: 10}
  template: {spec: {containers: [{name: server, image: "` + modelImage + `", args: [--batch, 1=2ms]}]}}
`

// givesTwoGPUs: a replica with two GPUs gets both of a node, each whole, and serves.
func (s *served) givesTwoGPUs(t *testing.T) {
	s.write(t, twoGPUsFunction)
	s.wait(t, "ready", func() bool { return s.readyReplicas(t, api.LabelFunction, "two-gpus") == 1 })
	if err := s.askFirst(t, "two-gpus"); err != nil {
		t.Fatal(err)
	}
	pods := s.pods(t, "default", api.LabelFunction, "two-gpus")
	if len(pods) != 1 {
		t.Fatalf("%d pods", len(pods))
	}
	placement, _, err := kube.PlacementOf(&pods[0])
	if err != nil {
		t.Fatal(err)
	}
	got := placement.Containers[0].VGPUs
	if len(got) != 2 || got[0].Slice == got[1].Slice || !got[0].Share.IsWhole() || got[1].Share.Memory != 70*1024*share.MiB {
		t.Errorf("placed as %+v", got)
	}
	s.wait(t, "status", func() bool {
		f := &api.GPUFunction{}
		return s.objects.Get(s.ctx, client.ObjectKey{Namespace: "default", Name: "two-gpus"}, f) == nil && f.Status.Share == "2 x 100% x 100%" && f.Status.Pods == "1+0+0"
	})
	for _, n := range s.Nodes {
		s.waitBooks(s.ctx, t, n)
	}
	s.kubectl(t, "delete", "gpufunction", "two-gpus")
}
