package cluster_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// pairFunction has up to two replicas, for which the SM-time of one GPU is not enough, and keeps one in reserve for longer than the test takes. Its last
// replica stays Hot without load: if the test process stalled for two seconds, this replica would otherwise take the place of the one in reserve.
// Its objective is so long that no request is refused because it would miss it, however busy the machine is.
const pairFunction = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: pair}
spec:
  slo: {latency: 1m}
  access: {namespaces: ["*"]}
  resources: {share: {sm: 60, quota: 100, memory: 1Gi}}
  scaling: {minReplicas: 1, maxReplicas: 2, requestsPerSecond: 10, window: 2s, keepShared: 10m}
  template: {spec: {containers: [{name: server, image: "` + modelImage + `", args: [--batch, 1=2ms]}]}}
`

// besideFastPod has three pods, for which the cluster's four GPUs have enough SM-time beside one replica of pairFunction, but not beside two.
const besideFastPod = `apiVersion: serving.gshare.dev/v1alpha1
kind: FaSTPod
metadata: {name: beside}
spec:
  replicas: 3
  share: {sm: 60, quota: 100, memory: 1Gi}
  template: {spec: {containers: [{name: server, image: "` + modelImage + `", args: [--batch, 1=2ms], readinessProbe: {tcpSocket: {port: 8080}}}]}}
`

// wholeFunction has three replicas with a whole GPU each.
const wholeFunction = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: whole}
spec:
  slo: {latency: 2s}
  scaling: {minReplicas: 3}
  template: {spec: {containers: [{name: server, image: "` + modelImage + `", args: [--batch, 1=2ms]}]}}
`

// Rates in requests per second at which pairFunction needs both replicas, or only one.
const (
	rateOfTwo = 16
	rateOfOne = 4
)

// The following parts of TestServing take a replica into reserve and back. All components have to cooperate: the controller writes the desired level,
// the node's agent frees the SM-time and reports it, the scheduler gives it to another pod, and gateways send requests only to replicas that answer
// them.

// under waits until a condition of the cluster holds while clients send requests to a function, none of which may fail. Then it calls the functions in
// then while clients are still sending, since two seconds without load are enough to change the function's replicas.
func (s *served) under(t *testing.T, rate int, what string, holds func() bool, then ...func()) {
	t.Helper()
	c := s.newClients(t, "pair")
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	c.running.Go(func() { c.send(ctx, rate) })
	took := s.wait(t, what, holds)
	for _, do := range then {
		do()
	}
	stop()
	sent, failed := c.wait()
	t.Logf("%s after %.1f s, %d requests", what, took.Seconds(), sent)
	if len(failed) > 0 {
		t.Errorf("%s: %d of %d requests failed, such as %v", what, len(failed), sent, failed[0])
	}
}

// replicas returns the function's pods, sorted by UID, and how many of the ready ones have reached each level, all at one moment.
func (s *served) replicas(t *testing.T) (pods []types.UID, reached map[residency.Level]int) {
	t.Helper()
	reached = map[residency.Level]int{}
	for _, p := range s.pods(t, "default", api.LabelFunction, "pair") {
		pods = append(pods, p.UID)
		_, has, err := kube.ResidencyOf(&p)
		if err != nil {
			t.Fatal(err)
		}
		if _, ready := api.Address(&p); ready {
			reached[has.Level]++
		}
	}
	slices.Sort(pods)
	return pods, reached
}

// are returns a condition that holds when the function has exactly this many pods at each level.
func (s *served) are(t *testing.T, hot, shared int) func() bool {
	return func() bool {
		pods, reached := s.replicas(t)
		return reached[residency.Hot] == hot && reached[residency.Shared] == shared && len(pods) == hot+shared
	}
}

// atLeast sets how many replicas stay Hot whatever the load is, and waits until the controller knows.
func (s *served) atLeast(t *testing.T, replicas string) {
	t.Helper()
	s.kubectl(t, "patch", "gpufunction", "pair", "--type=merge", "-p", `{"spec": {"scaling": {"minReplicas": `+replicas+`}}}`)
	s.wait(t, "minReplicas is known to the controller", func() bool {
		f := &api.GPUFunction{}
		s.read(t, "default", "pair", f)
		return f.Status.ObservedGeneration == f.Generation
	})
}

// readyReplicas returns how many pods of a FaSTPod or a function are ready.
func (s *served) readyReplicas(t *testing.T, label, name string) (n int) {
	t.Helper()
	for _, p := range s.pods(t, "default", label, name) {
		if slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool { return c.Type == v1.PodReady && c.Status == v1.ConditionTrue }) {
			n++
		}
	}
	return n
}

// hasEvent reports whether a function has an event with a reason.
func (s *served) hasEvent(t *testing.T, function, reason string) bool {
	t.Helper()
	out := s.kubectlGet(t, "events", "--field-selector", "involvedObject.name="+function+",reason="+reason, "-o", "name")
	return strings.TrimSpace(out) != ""
}

// keepsReserve: when the load needs only one of two replicas, the other one is kept in reserve.
func (s *served) keepsReserve(t *testing.T) {
	s.write(t, pairFunction)
	for _, gateway := range s.pods(t, "gshare-system", "app", "gshare-gateway") { // the clients below use both gateways
		if err := s.askFirstAt(t, gateway, "pair"); err != nil {
			t.Fatal(err)
		}
	}
	s.under(t, rateOfTwo, "two replicas", s.are(t, 2, 0))
	s.under(t, rateOfOne, "one in reserve", s.are(t, 1, 1))
}

// raisesReserve: under more load the same pods serve again, and no other pod is started.
func (s *served) raisesReserve(t *testing.T) {
	before, _ := s.replicas(t)
	var now []types.UID
	s.under(t, rateOfTwo, "both are Hot", func() bool {
		var reached map[residency.Level]int
		now, reached = s.replicas(t)
		return reached[residency.Hot] == 2 && len(now) == 2
	})
	if !slices.Equal(now, before) {
		t.Errorf("the pods are %v, were %v", now, before)
	}
}

// givesTimeOfReserve: a pod for which two Hot replicas leave no SM-time is placed beside the replica that goes into reserve, and that replica stays.
func (s *served) givesTimeOfReserve(t *testing.T) {
	s.atLeast(t, "2") // if the load fell for a moment, the third pod would take the SM-time of the second replica for good
	s.under(t, rateOfTwo, "both are Hot", s.are(t, 2, 0), func() { s.write(t, besideFastPod) })
	s.under(t, rateOfTwo, "a third pod finds no node beside two Hot replicas", func() bool {
		return s.readyReplicas(t, api.LabelFaSTPod, "beside") == 2 && slices.ContainsFunc(s.pods(t, "default", api.LabelFaSTPod, "beside"), isUnschedulable) &&
			s.are(t, 2, 0)()
	})
	s.atLeast(t, "1")
	s.under(t, rateOfOne, "it runs beside the reserve, which stays", func() bool {
		return s.readyReplicas(t, api.LabelFaSTPod, "beside") == 3 && s.are(t, 1, 1)()
	}, func() { s.areBesideReserve(t) })
}

// areBesideReserve checks that the five pods share the four GPUs, and that all records about each node agree.
func (s *served) areBesideReserve(t *testing.T) {
	onSlice := map[string]int{}
	pods := append(s.pods(t, "default", api.LabelFaSTPod, "beside"), s.pods(t, "default", api.LabelFunction, "pair")...)
	for _, p := range pods {
		placement, present, err := kube.PlacementOf(&p)
		if err != nil || !present {
			t.Fatalf("pod %s: placement %v, %v", p.Name, present, err)
		}
		onSlice[p.Spec.NodeName+"/"+placement.Containers[0].VGPUs[0].Slice]++
	}
	if len(onSlice) != 4 {
		t.Errorf("five pods on the slices %v: want four, with two on the one of the reserve", onSlice)
	}
	for _, n := range s.Nodes {
		s.waitBooks(s.ctx, t, n)
	}
}

func isUnschedulable(p v1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
		return c.Type == v1.PodScheduled && c.Reason == v1.PodReasonUnschedulable
	})
}

// replacesReserve: a replica whose SM-time has been given to another pod stays Shared, and the replacement that is created for it waits for a node. As
// soon as there is room, one of them becomes Hot, and the function has two replicas again.
func (s *served) replacesReserve(t *testing.T) {
	s.atLeast(t, "2") // if the load fell for a moment, the replacement would no longer be needed
	s.under(t, rateOfTwo, "a replacement waits for a node", func() bool {
		_, reached := s.replicas(t)
		return reached[residency.Hot] == 1 && reached[residency.Shared] == 1 && s.hasEvent(t, "pair", "StaysShared") &&
			slices.ContainsFunc(s.pods(t, "default", api.LabelFunction, "pair"), isUnschedulable)
	}, func() { s.kubectl(t, "delete", "fastpod", "beside") })
	s.under(t, rateOfTwo, "two are Hot", s.are(t, 2, 0))
}

// endsReserve: a replica in reserve ends when another function needs its GPU, and both functions report it.
func (s *served) endsReserve(t *testing.T) {
	s.atLeast(t, "1")
	s.under(t, rateOfOne, "one in reserve", s.are(t, 1, 1), func() { s.write(t, wholeFunction) })
	s.under(t, rateOfOne, "three whole GPUs, and only the Hot replica", func() bool {
		return s.readyReplicas(t, api.LabelFunction, "whole") == 3 && s.are(t, 1, 0)()
	})
	for _, function := range []string{"pair", "whole"} {
		s.wait(t, "event MadeRoom of function "+function, func() bool { return s.hasEvent(t, function, "MadeRoom") })
	}
}

// deletesReserve: no node has anything left of the deleted functions.
func (s *served) deletesReserve(t *testing.T) {
	s.kubectl(t, "delete", "gpufunction", "pair", "whole")
	s.wait(t, "no pods", func() bool {
		list := &v1.PodList{}
		return s.objects.List(s.ctx, list, client.InNamespace("default")) == nil && len(list.Items) == 0
	})
	for _, n := range s.Nodes {
		s.waitBooks(s.ctx, t, n)
	}
}
