package sharing

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

func TestSyncFollowsGenerations(t *testing.T) {
	info := newNodeInfo(gpuNode(t, "n1", 1))
	p := newPlugin(t, newHandle(info), 0)
	pod := gpuPod("a", 100, 60)
	filter := func() bool {
		state, _ := prefilter(t, p, pod)
		return p.Filter(t.Context(), state, pod, info).IsSuccess()
	}
	other := placed(t, gpuPod("b", 100, 60), "n1", "n1-0")
	for range 2 {
		if !filter() {
			t.Error("refused by an empty node")
		}
		info.add(other)
		if filter() {
			t.Error("admitted by a full node")
		}
		info.remove(other)
	}
}

// Nodes come and go one by one where a cluster grows; what is known of the others must survive.
func TestResetKeepsWhatItKnows(t *testing.T) {
	a, b, c := newNodeInfo(gpuNode(t, "a", 2)), newNodeInfo(gpuNode(t, "b", 1), placed(t, gpuPod("x", 100, 30), "b", "b-0")), newNodeInfo(gpuNode(t, "c", 4))
	b.generation = 1 // the first that a scheduler counts
	h := newHandle(a, b)
	p := newPlugin(t, h, 0)
	prefilter(t, p, cpuPod("p"))
	known, version := p.fleet.ranks.Node(1), p.fleet.ranks.Version(1)
	h.snapshot = []fwk.NodeInfo{c, b}
	prefilter(t, p, cpuPod("p"))
	if p.fleet.ranks.Node(1) != known || p.fleet.ranks.Version(1) != version {
		t.Error("node b was derived again")
	}
	if _, ok := p.fleet.index["a"]; ok || p.fleet.index["c"] != 0 || p.fleet.total.GPU != 5000 || p.fleet.mix.Pods() != 1 {
		t.Errorf("index %v, %d milli-GPU, %d pods", p.fleet.index, p.fleet.total.GPU, p.fleet.mix.Pods())
	}
	b.add(placed(t, gpuPod("y", 100, 30), "b", "b-0"))
	h.snapshot = []fwk.NodeInfo{b, c}
	prefilter(t, p, cpuPod("p"))
	if got := requested(p.fleet.ranks.Node(0)); got[0] != 60 || p.fleet.mix.Pods() != 2 {
		t.Errorf("requested %v, %d pods", got, p.fleet.mix.Pods())
	}
}

// The demand is frozen again after a change by half, and no more often.
func TestFreezeIsRare(t *testing.T) {
	info := newNodeInfo(gpuNode(t, "n1", 8))
	p := newPlugin(t, newHandle(info), 0)
	var pods []*v1.Pod
	for i := range 64 {
		pod := gpuPod(fmt.Sprint("p", i), 100, 10)
		reserve(t, p, pod, "n1")
		bind(t, p.ledger, info, pod)
		pods = append(pods, pod)
	}
	if epochs := p.fleet.epoch.Load(); epochs < 2 || epochs > 12 {
		t.Errorf("%d epochs while %d pods came", epochs, len(pods))
	}
	before := p.fleet.epoch.Load()
	for range 10 {
		prefilter(t, p, pods[0])
	}
	if p.fleet.epoch.Load() != before {
		t.Error("a new epoch although nothing changed")
	}
}

// A simulation changes NodeInfos without a new generation.
func TestGroupCyclesDoNotUseTheFleet(t *testing.T) {
	info := newNodeInfo(gpuNode(t, "n1", 1))
	p := newPlugin(t, newHandle(info), 0)
	pod := gpuPod("a", 100, 60)
	prefilter(t, p, pod)
	state := newState()
	state.group = true
	if _, status := p.PreFilter(t.Context(), state, pod, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	generation := info.generation
	info.add(placed(t, gpuPod("mate", 100, 60), "n1", "n1-0"))
	info.generation = generation
	if status := p.Filter(t.Context(), state, pod, info); status.Code() != fwk.Unschedulable {
		t.Errorf("status %v; the mate was not seen", status)
	}
}

// The demand is computed from these. A pod counted with the wrong shape would go unnoticed and only make the choices worse.
func TestPodsAreCountedByTheirShape(t *testing.T) {
	pod := placed(t, gpuPod("a", 60, 50), "n1", "n1-0")
	p := newPlugin(t, newHandle(newNodeInfo(gpuNode(t, "n1", 1), pod, cpuPod("b", on("n1")))), 0)
	prefilter(t, p, cpuPod("c"))
	want := packing.Shape{VGPUs: 1, Milli: 300, Memory: 1 << 30, CPU: 1000, RAM: 1 << 30, Kind: "gpu"}
	if got := p.fleet.facts[0].shapes; len(got) != 1 || got[0] != want {
		t.Errorf("shapes %+v, want %+v alone", got, want)
	}
}
