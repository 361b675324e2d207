package sharing

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

func TestReserveRunsManyTimes(t *testing.T) {
	h := newHandle(newNodeInfo(gpuNode(t, "n1", 1)))
	p := newPlugin(t, h, 0)
	pod := gpuPod("a", 100, 60)
	state := reserve(t, p, pod, "n1")
	first, _ := p.ledger.Get(pod.UID)
	for range 3 { // two of them would not fit together
		if status := p.Reserve(t.Context(), state, pod, "n1"); !status.IsSuccess() {
			t.Fatal(status)
		}
	}
	if again, _ := p.ledger.Get(pod.UID); p.ledger.Len() != 1 || again.Containers[0].VGPUs[0] != first.Containers[0].VGPUs[0] {
		t.Errorf("%d assumed, %v after %v", p.ledger.Len(), again, first)
	}
}

// In a group simulation the snapshot shows the pod itself as assumed.
func TestReserveLeavesOutThePodItself(t *testing.T) {
	info := newNodeInfo(gpuNode(t, "n1", 1))
	p := newPlugin(t, newHandle(info), 0)
	pod := gpuPod("a", 100, 60)
	state := newState()
	state.group = true
	if _, status := p.PreFilter(t.Context(), state, pod, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	info.add(gpuPod("a", 100, 60, on("n1")))
	if status := p.Reserve(t.Context(), state, pod, "n1"); !status.IsSuccess() {
		t.Error(status)
	}
}

// The commit of a group reserves one mate after the other on a snapshot that shows none of them.
func TestMatesOfOneLoopCount(t *testing.T) {
	h := newHandle(newNodeInfo(gpuNode(t, "n1", 1)))
	p := newPlugin(t, h, 0)
	a, b, c := gpuPod("a", 100, 40), gpuPod("b", 100, 40), gpuPod("c", 100, 40)
	h.knows(a, b)
	reserve(t, p, a, "n1")
	reserve(t, p, b, "n1")
	state, _ := prefilter(t, p, c)
	if status := p.Filter(t.Context(), state, c, p.handle.(*fakeHandle).snapshot[0]); !status.IsSuccess() {
		t.Fatalf("the snapshot alone has room: %v", status)
	}
	// No event need follow that would wake the pod, so it must come back by itself.
	if status := p.Reserve(t.Context(), state, c, "n1"); status.Code() != fwk.Error {
		t.Errorf("status %v, want an error, which is retried", status)
	}
}

// The event of a pod's end may wake another before the ledger hears of it.
func TestPromiseToAPodThatIsGoneDoesNotCount(t *testing.T) {
	h := newHandle(newNodeInfo(gpuNode(t, "n1", 1)))
	p := newPlugin(t, h, 0)
	reserve(t, p, gpuPod("gone", 100, 100), "n1") // the informer does not have it
	reserve(t, p, gpuPod("next", 100, 100), "n1")
}

// A simulation goes by the snapshot alone, and its refusal is no error: that would end the whole group's cycle.
func TestSimulationGoesByTheSnapshot(t *testing.T) {
	info := newNodeInfo(gpuNode(t, "n1", 1))
	p := newPlugin(t, newHandle(info), 0)
	reserve(t, p, gpuPod("elsewhere", 100, 100), "n1")
	pod := gpuPod("a", 100, 60)
	state := newState()
	state.group = true
	if _, status := p.PreFilter(t.Context(), state, pod, nil); !status.IsSuccess() {
		t.Fatal(status)
	}
	if status := p.Reserve(t.Context(), state, pod, "n1"); !status.IsSuccess() {
		t.Errorf("assumed that the snapshot does not show were counted: %v", status)
	}
	info.add(placed(t, gpuPod("b", 100, 60), "n1", "n1-0"))
	if status := p.Reserve(t.Context(), state, pod, "n1"); status.Code() != fwk.Unschedulable {
		t.Errorf("status %v", status)
	}
}

func TestUnreserveOfAnOlderAttemptFreesNothing(t *testing.T) {
	p := newPlugin(t, newHandle(newNodeInfo(gpuNode(t, "n1", 1))), 0)
	pod := gpuPod("a", 100, 60)
	first := reserve(t, p, pod, "n1")
	second := reserve(t, p, pod, "n1")
	p.Unreserve(t.Context(), first, pod, "n1")
	p.Unreserve(t.Context(), newState(), pod, "n1") // of a cycle that ended before PreFilter
	if p.ledger.Len() != 1 {
		t.Fatal("the assumed of the second attempt is gone")
	}
	p.Unreserve(t.Context(), second, pod, "n1")
	if p.ledger.Len() != 0 {
		t.Error("the assumed stays behind")
	}
}

func TestReserveOfAPodWithoutAShare(t *testing.T) {
	p := newPlugin(t, newHandle(newNodeInfo(gpuNode(t, "n1", 1))), 0)
	reserve(t, p, cpuPod("a"), "n1")
	if p.ledger.Len() != 0 {
		t.Error("a placement assumed for a pod that asks for no GPU")
	}
	if status := p.Reserve(context.Background(), newState(), gpuPod("b", 10, 10), "n1"); status.Code() != fwk.Error {
		t.Errorf("without PreFilter: status %v", status)
	}
}

// What Unreserve leaves is what was there before Reserve; and what a fresh process derives from the
// annotations is what this one derives from its ledger.
func TestOccupancySurvivesUnreserveAndRestart(t *testing.T) {
	info := newNodeInfo(gpuNode(t, "n1", 3))
	p := newPlugin(t, newHandle(info), 0)
	sums := func(p *Plugin) []int64 {
		node, err := p.deriveNode(info, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		return requested(node)
	}
	for _, pod := range []*v1.Pod{gpuPod("a", 100, 60), gpuPod("b", 50, 100), gpuPod("c", 100, 30), gpuPod("d", 100, 70), gpuPod("e", 30, 80)} {
		before := sums(p)
		p.Unreserve(t.Context(), reserve(t, p, pod, "n1"), pod, "n1")
		if after := sums(p); !slices.Equal(before, after) {
			t.Errorf("pod %s: %v before Reserve, %v after Unreserve", pod.Name, before, after)
		}
		reserve(t, p, pod, "n1")
		bind(t, p.ledger, info, pod)
	}
	fresh := newPlugin(t, newHandle(info), 0)
	if live, derived := sums(p), sums(fresh); fresh.ledger.Len() != 0 || !slices.Equal(live, derived) {
		t.Errorf("live %v, derived after a restart %v", live, derived)
	}
}

// bind puts the pod on the node as the API server would show it.
func bind(t *testing.T, l *ledger.Ledger, info *fakeNode, pod *v1.Pod) {
	t.Helper()
	assumed, ok := l.Get(pod.UID)
	if !ok {
		t.Fatalf("no assumed for %s", pod.Name)
	}
	binding, err := kube.MakeBinding(pod, info.node.Name, assumed.Placement)
	if err != nil {
		t.Fatal(err)
	}
	bound := pod.DeepCopy()
	bound.Spec.NodeName, bound.ResourceVersion = info.node.Name, "2"
	bound.Annotations = binding.Annotations
	info.add(bound)
}

// Other pods were evicted to make space for a nominated pod. Filter admits another pod only beside it; Reserve must not
// then use that space nevertheless.
func TestReserveLeavesNomineesTheirRoom(t *testing.T) {
	nominee := func(edits ...edit) *v1.Pod {
		nominate := func(pod *v1.Pod) { pod.Status.NominatedNodeName = "n1" }
		return gpuPod("nominee", 40, 100, append(edits, nominate, limit(kube.ResourceMemory, 30000))...)
	}
	// Half of either GPU is free, but the nominee's memory only on the first, which is the tighter one.
	info := newNodeInfo(gpuNode(t, "n1", 2),
		placed(t, gpuPod("a", 50, 100), "n1", "n1-0"), placed(t, gpuPod("b", 40, 100, limit(kube.ResourceMemory, 20000)), "n1", "n1-1"))
	victim := placed(t, gpuPod("victim", 60, 100, ending), "n1", "n1-1")
	for name, tt := range map[string]struct {
		nominee *v1.Pod
		more    []*v1.Pod
		want    string
	}{
		"of higher priority": {nominee(withPriority(1)), nil, "n1-1"},
		"of equal priority":  {nominee(), nil, "n1-1"},
		"of lower priority":  {nominee(withPriority(-1)), nil, "n1-0"},
		"the pod itself":     {nominee(func(pod *v1.Pod) { pod.UID = "uid-new" }), nil, "n1-0"},
		// If the nominee and the pods that terminate for it do not fit together, the running pods count.
		"room that is not free yet": {nominee(withPriority(1)), []*v1.Pod{victim}, "n1-0"},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNodeInfo(info.node, append(slices.Clone(info.pods), tt.more...)...)
			h := newHandle(node)
			h.nominated = []*v1.Pod{tt.nominee}
			p := newPlugin(t, h, 0)
			pod := gpuPod("new", 45, 100)
			reserve(t, p, pod, "n1")
			if assumed, _ := p.ledger.Get(pod.UID); assumed.Containers[0].VGPUs[0].Slice != tt.want {
				t.Errorf("on %s, want %s", assumed.Containers[0].VGPUs[0].Slice, tt.want)
			}
		})
	}
}
