package cluster_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/test/cluster"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

const fragments = `devices:
- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920, mig: [
  {uuid: MIG-a, profile: 1g.10gb, sms: 14, memoryMiB: 9728}, {uuid: MIG-large, profile: 3g.40gb, sms: 42, memoryMiB: 40192}]}
- {uuid: GPU-1, model: A100, sms: 108, memoryMiB: 81920, mig: [{uuid: MIG-b, profile: 1g.10gb, sms: 14, memoryMiB: 9728}]}
`

// inThree is a function of three stages that needs 14 GiB: all of it on a large instance, or parts of at most 9 GiB on small ones.
const inThree = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: images, namespace: default}
spec:
  protocol: OIP
  slo: {latency: 500ms}
  scaling: {requestsPerSecond: 40, minReplicas: 1, maxReplicas: 1}
  template:
    spec:
      terminationGracePeriodSeconds: 0
      containers: [{name: server, image: IMAGE, imagePullPolicy: Never, command: [sleep, inf]}]
  pipeline:
    transfer: 1ms
    stages:
    - {name: denoise, memory: 6Gi, times: [{profile: 1g.10gb, time: 40ms}, {profile: 3g.40gb, time: 15ms}]}
    - {name: segment, dependsOn: [denoise], memory: 3Gi, times: [{profile: 1g.10gb, time: 18ms}, {profile: 3g.40gb, time: 7ms}]}
    - {name: classify, dependsOn: [segment], memory: 5Gi, times: [{profile: 1g.10gb, time: 55ms}, {profile: 3g.40gb, time: 20ms}]}
`

// TestServingPipeline: the replica of a function that no free MIG instance holds is cut into two containers with an instance each, of two GPUs, which the agent
// grants to them alone. Once the large instance is free, a replica is whole on it.
func TestServingPipeline(t *testing.T) {
	long(t)
	s := startFragments(t)
	node := s.Nodes[0]
	holder := cluster.Pod("holder", "sleep", "inf")
	holder.Spec.Containers[0].Resources.Limits = limits(100, 100, 40192)
	holder.Annotations = map[string]string{kube.AnnotationContainerSlice + "main": "3g.40gb"}
	kube.Complete(holder)
	s.create(s.ctx, t, holder)
	if _, err := s.WaitPod(s.ctx, "holder", cluster.IsRunning); err != nil {
		t.Fatal(err)
	}

	s.write(t, strings.Replace(inThree, "IMAGE", cluster.BusyboxImage, 1))
	first := s.waitReplica(t, "")
	if got, want := s.slicesOf(t, first), []string{"MIG-a", "MIG-b"}; !slices.Equal(got, want) {
		t.Errorf("the parts of %s are on %v, want %v", first.Name, got, want)
	}
	if sidecars := first.Spec.InitContainers; len(sidecars) != 1 || sidecars[0].Name != "gshare-stage-1" {
		t.Errorf("sidecars %+v", sidecars)
	}
	s.waitBooks(s.ctx, t, node)

	s.leave(s.ctx, t, []*v1.Pod{holder})
	if err := s.waitEnded(s.ctx, "holder"); err != nil {
		t.Fatal(err)
	}
	for replica := first; !slices.Equal(s.slicesOf(t, replica), []string{"MIG-large"}); { // the controller looks for free instances once a second
		if err := s.objects.Delete(s.ctx, replica); err != nil {
			t.Fatal(err)
		}
		replica = s.waitReplica(t, replica.UID)
	}
	s.waitBooks(s.ctx, t, node)
}

// startFragments starts a cluster that serves, with one node of MIG instances.
func startFragments(t *testing.T) *served {
	t.Helper()
	images := []cluster.Image{servingImage(t, "gshare-controller"), servingImage(t, "gshare-gateway")}
	s := &served{agents: startWithAgents(t, cluster.Options{Nodes: 1, Images: images}, fragments)}
	var stop context.CancelFunc
	s.ctx, stop = context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(stop)
	s.http.Transport = &http.Transport{DialContext: s.Nodes[0].Machine.Dial}
	s.of[s.Nodes[0].Name].withoutDriver(s.ctx, t)
	s.waitInventory(s.ctx, t, s.Nodes[0])
	s.serve(t)
	return s
}

// waitReplica waits until a replica of the function runs that is not this one; it may have the same name.
func (s *served) waitReplica(t *testing.T, not types.UID) *v1.Pod {
	t.Helper()
	for {
		for _, p := range s.pods(t, "default", api.LabelFunction, "images") {
			if p.UID != not && cluster.IsRunning(&p) {
				return &p
			}
		}
		select {
		case <-s.ctx.Done():
			t.Fatal("no replica of the function runs")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// slicesOf returns the slices of a pod, sorted.
func (s *served) slicesOf(t *testing.T, pod *v1.Pod) []string {
	t.Helper()
	placed, _, err := kube.PlacementOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, c := range placed.Containers {
		for _, v := range c.VGPUs {
			found = append(found, v.Slice)
		}
	}
	slices.Sort(found)
	return found
}
