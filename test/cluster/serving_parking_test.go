package cluster_test

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// parkedFunction has one replica, which is parked shortly after it was last needed. Each GPU has 80 GiB.
const parkedFunction = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: parked}
spec:
  slo: {latency: 1m}
  protocol: OIP
  access: {namespaces: ["*"]}
  resources: {share: {sm: 50, quota: 100, memory: 60Gi}}
  scaling: {maxReplicas: 1, requestsPerSecond: 10, window: 2s, keepShared: 1s, keepWarm: 10m}
  template: {spec: {containers: [{name: server, image: "` + modelImage + `", args: [--batch, 1=2ms, --weights, 64Mi]}]}}
`

// largeFastPod requests as much memory as each of the cluster's four GPUs has, so that it does not fit beside the replica of parkedFunction.
const largeFastPod = `apiVersion: serving.gshare.dev/v1alpha1
kind: FaSTPod
metadata: {name: large}
spec:
  replicas: 4
  share: {sm: 30, quota: 100, memory: 70Gi}
  template: {spec: {containers: [{name: server, image: "` + modelImage + `", args: [--batch, 1=2ms], readinessProbe: {tcpSocket: {port: 8080}}}]}}
`

// The following parts of TestServing park a replica, give its memory to another pod, and make the replica serve again.

// parkedPods returns the function's pods that have reached level Warm, and the memory that they keep.
func (s *served) parkedPods(t *testing.T) (found []types.UID, kept share.Bytes) {
	t.Helper()
	for _, p := range s.pods(t, "default", api.LabelFunction, "parked") {
		w, r, err := kube.ResidencyOf(&p)
		if err != nil {
			t.Fatal(err)
		}
		if w.Level == residency.Warm && r.Level == residency.Warm {
			found, kept = append(found, p.UID), kept+r.Memory
		}
	}
	return found, kept
}

// parks: a replica that is no longer needed releases its GPU memory, and its pod stays.
func (s *served) parks(t *testing.T) {
	s.write(t, parkedFunction)
	if err := s.askFirst(t, "parked"); err != nil {
		t.Fatal(err)
	}
	before := s.pods(t, "default", api.LabelFunction, "parked")
	took := s.wait(t, "parked", func() bool { found, _ := s.parkedPods(t); return len(found) == 1 })
	found, kept := s.parkedPods(t)
	t.Logf("parked %.1f s after the last request, keeps %d bytes", took.Seconds(), kept)
	if len(before) != 1 || found[0] != before[0].UID || kept >= 64*share.MiB {
		t.Errorf("pod %v keeps %d bytes; it was %d pods", found, kept, len(before))
	}
	s.wait(t, "status", func() bool {
		f := &api.GPUFunction{}
		return s.objects.Get(s.ctx, client.ObjectKey{Namespace: "default", Name: "parked"}, f) == nil && f.Status.Pods == "0+0+1"
	})
}

// givesMemoryOfParked: the memory of the parked replica goes to another pod.
func (s *served) givesMemoryOfParked(t *testing.T) {
	s.write(t, largeFastPod)
	s.wait(t, "four large pods", func() bool { return s.readyReplicas(t, api.LabelFaSTPod, "large") == 4 })
	if found, _ := s.parkedPods(t); len(found) != 1 {
		t.Errorf("%d pods are parked", len(found))
	}
	for _, n := range s.Nodes {
		s.waitBooks(s.ctx, t, n)
	}
	s.kubectl(t, "delete", "fastpod", "large")
	s.wait(t, "no large pods", func() bool {
		list := &v1.PodList{}
		return s.objects.List(s.ctx, list, client.InNamespace("default"), client.MatchingLabels{api.LabelFaSTPod: "large"}) == nil && len(list.Items) == 0
	})
	for _, n := range s.Nodes {
		s.waitBooks(s.ctx, t, n)
	}
}

// wakesParked: a request makes the parked replica serve again. It waits until then and is answered, and so are all requests that arrive meanwhile.
// Later the replica is parked again.
func (s *served) wakesParked(t *testing.T) {
	parked, _ := s.parkedPods(t)
	c := s.newClients(t, "parked")
	began := time.Now()
	c.burst(8)
	sent, failed := c.wait()
	t.Logf("%d requests to a parked replica are answered after %.1f s", sent, time.Since(began).Seconds())
	if len(failed) > 0 {
		t.Errorf("%d of %d requests failed, such as %v", len(failed), sent, failed[0])
	}
	pods := s.pods(t, "default", api.LabelFunction, "parked")
	if len(pods) != 1 || !slices.Contains(parked, pods[0].UID) {
		t.Errorf("%d pods, was parked: %v", len(pods), parked)
	}
	s.wait(t, "parked again", func() bool { found, _ := s.parkedPods(t); return slices.Equal(found, parked) })
	s.kubectl(t, "delete", "gpufunction", "parked")
	s.wait(t, "no pods", func() bool { return len(s.pods(t, "default", api.LabelFunction, "parked")) == 0 })
	for _, n := range s.Nodes {
		s.waitBooks(s.ctx, t, n)
	}
}
