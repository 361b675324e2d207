package sharing

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// residencyOf makes the pod an instance of a function, for which the controller wants a level and whose agent reports one.
func residencyOf(w residency.Wanted, r residency.Reached) edit {
	wanted, err := w.Encode()
	if err != nil {
		panic(err)
	}
	reached, err := r.Encode()
	if err != nil {
		panic(err)
	}
	return func(pod *v1.Pod) {
		annotation(kube.AnnotationResidency, wanted)(pod)
		annotation(kube.AnnotationResidencyReached, reached)(pod)
	}
}

// The instances of these tests: lowered, raised but not yet by the agent, and lowered but not yet by the agent.
var (
	shared   = residencyOf(residency.Wanted{Seq: 2, Level: residency.Shared}, residency.Reached{Seq: 2, Level: residency.Shared})
	raised   = residencyOf(residency.Wanted{Seq: 3, Level: residency.Hot}, residency.Reached{Seq: 2, Level: residency.Shared})
	lowering = residencyOf(residency.Wanted{Seq: 2, Level: residency.Shared}, residency.Reached{Seq: 1, Level: residency.Hot})
)

// version returns the pod as an update makes it.
func version(pod *v1.Pod, resourceVersion string, edits ...edit) *v1.Pod {
	out := pod.DeepCopy()
	for _, e := range edits {
		e(out)
	}
	out.ResourceVersion = resourceVersion
	return out
}

func TestPlacedPodCountsAtItsLevel(t *testing.T) {
	pod := placed(t, gpuPod("a", 60, 100), "n1", "n1-0")
	for name, tt := range map[string]struct {
		edit edit
		want int64 // percent of the slice
	}{
		"not an instance": {func(*v1.Pod) {}, 60},
		"Shared":          {shared, 0},
		"raised":          {raised, 60},
		"being lowered":   {lowering, 60},
		"not started":     {func(pod *v1.Pod) { shared(pod); delete(pod.Annotations, kube.AnnotationResidencyReached) }, 60},
		"malformed":       {func(pod *v1.Pod) { shared(pod); pod.Annotations[kube.AnnotationResidencyReached] = "{" }, 60},
	} {
		t.Run(name, func(t *testing.T) {
			for _, ours := range []bool{false, true} { // also where this process bound the pod
				p := newPlugin(t, newHandle(), 0)
				if ours {
					assumed(t, p, pod)
				}
				node, err := p.deriveNode(newNodeInfo(gpuNode(t, "n1", 1), version(pod, "3", tt.edit)), "", nil)
				if err != nil {
					t.Fatal(err)
				}
				l := &node.Loads[0]
				if got := requested(node)[0]; got != tt.want || l.Memory() != 1024*share.MiB || len(l.Residents()) != 1 {
					t.Errorf("ledger: %t: requested %d %%, want %d %%; %d bytes, %d shares", ours, got, tt.want, l.Memory(), len(l.Residents()))
				}
			}
		})
	}
}

// What anybody wrote on a pod before it was bound does not make it Shared.
func TestAssumedPodCountsHot(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	pod := gpuPod("a", 60, 100, shared)
	assumed(t, p, placed(t, pod, "n1", "n1-0"))
	for name, node := range map[string]*fakeNode{
		"in the snapshot":      newNodeInfo(gpuNode(t, "n1", 1), version(pod, "1", on("n1"))),
		"in the ledger only":   newNodeInfo(gpuNode(t, "n1", 1)),
		"beside a Shared pod":  newNodeInfo(gpuNode(t, "n1", 1), version(placed(t, gpuPod("b", 60, 100), "n1", "n1-0"), "3", shared)),
		"and after it is seen": newNodeInfo(gpuNode(t, "n1", 1), version(placed(t, pod, "n1", "n1-0"), "3", lowering)),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := p.deriveNode(node, "", p.ledger.OnNode("n1"))
			if err != nil || !slices.Equal(requested(got), []int64{60}) {
				t.Errorf("requested %v, err %v", requested(got), err)
			}
		})
	}
}

// A pod waits for room on a slice. It gets it when an instance there gives up its SM-time, and not before; when the instance is raised, the
// slice takes nothing more, even if more is placed there than it has.
func TestRoomFollowsTheLevel(t *testing.T) {
	instance := placed(t, gpuPod("instance", 60, 100), "n1", "n1-0")
	node := newNodeInfo(gpuNode(t, "n1", 1), version(instance, "3", residencyOf(residency.Wanted{Seq: 1, Level: residency.Hot}, residency.Reached{Seq: 1, Level: residency.Hot})))
	h := newHandle(node)
	p := newPlugin(t, h, 0)
	waits, tiny := gpuPod("waits", 60, 100), gpuPod("tiny", 1, 1)
	h.knows(waits, tiny, instance)
	code := func(pod *v1.Pod) fwk.Code {
		t.Helper()
		state, _ := prefilter(t, p, pod)
		return p.Filter(t.Context(), state, pod, node).Code()
	}
	update := func(resourceVersion string, change edit) {
		node.remove(instance)
		node.add(version(instance, resourceVersion, change))
	}
	for _, step := range []struct {
		name   string
		do     func()
		want   fwk.Code
		ofTiny fwk.Code
	}{
		{"Hot", func() {}, fwk.Unschedulable, fwk.Success},
		{"lowering", func() { update("4", lowering) }, fwk.Unschedulable, fwk.Success},
		{"Shared", func() { update("5", shared) }, fwk.Success, fwk.Success},
		{"raised", func() { update("6", raised) }, fwk.Unschedulable, fwk.Success},
		{"Shared again", func() { update("7", shared) }, fwk.Success, fwk.Success},
		{"another is bound", func() { node.add(placed(t, gpuPod("other", 60, 100), "n1", "n1-0")) }, fwk.Unschedulable, fwk.Success},
		{"overfull", func() { update("8", raised) }, fwk.Unschedulable, fwk.Unschedulable},
		{"refused", func() { update("9", shared) }, fwk.Unschedulable, fwk.Success},
	} {
		step.do()
		if got, ofTiny := code(waits), code(tiny); got != step.want || ofTiny != step.ofTiny {
			t.Fatalf("%s: a pod of 60 %%: %v, want %v; of 1 %%: %v, want %v", step.name, got, step.want, ofTiny, step.ofTiny)
		}
	}
}

// A dry run of preemption frees what the victim counts for: of a Shared instance its memory, but no SM-time.
func TestPreemptionFreesWhatTheVictimCounts(t *testing.T) {
	large := func(pod *v1.Pod) { limit(kube.ResourceMemory, 40000)(pod) }
	victim := version(placed(t, gpuPod("victim", 60, 100, large), "n1", "n1-0"), "3", shared)
	for name, tt := range map[string]struct {
		beside *v1.Pod
		want   fwk.Code
	}{
		"memory was missing":  {cpuPod("none", on("n1")), fwk.Success},
		"SM-time was missing": {placed(t, gpuPod("hot", 60, 100), "n1", "n1-0"), fwk.Unschedulable},
	} {
		t.Run(name, func(t *testing.T) {
			node := newNodeInfo(gpuNode(t, "n1", 1), victim, tt.beside)
			p := newPlugin(t, newHandle(node), 0)
			waits := gpuPod("waits", 60, 100, large, withPriority(9))
			state, _ := prefilter(t, p, waits)
			if got := p.Filter(t.Context(), state, waits, node).Code(); got != fwk.Unschedulable {
				t.Fatalf("before: %v, want a status that preemption can change", got)
			}
			dry := *node
			dry.remove(victim)
			if got := p.Filter(t.Context(), state, waits, &dry).Code(); got != tt.want {
				t.Errorf("without the victim: %v, want %v", got, tt.want)
			}
		})
	}
}

func TestLoweredPodWakesWaitingOnes(t *testing.T) {
	pod := placed(t, gpuPod("x", 60, 100), "n1", "n1-0")
	hot := residencyOf(residency.Wanted{Seq: 1, Level: residency.Hot}, residency.Reached{Seq: 1, Level: residency.Hot})
	broken := func(pod *v1.Pod) { annotation(kube.AnnotationResidency, "{")(pod) }
	for name, tt := range map[string]struct {
		before, after edit
		want          fwk.QueueingHint
	}{
		"a level is written":       {hot, lowering, fwk.QueueSkip},
		"the agent has lowered":    {lowering, shared, fwk.Queue},
		"a raise is written":       {shared, raised, fwk.QueueSkip},
		"a refused raise is taken": {raised, shared, fwk.Queue},
		"malformed":                {shared, broken, fwk.QueueSkip},
		"put right":                {broken, shared, fwk.Queue},
		"something else":           {shared, func(pod *v1.Pod) { shared(pod); annotation("a", "b")(pod) }, fwk.QueueSkip},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, newHandle(), 0)
			got, err := p.hintPodUpdated(klog.Background(), gpuPod("waits", 50, 50), version(pod, "3", tt.before), version(pod, "4", tt.after))
			if err != nil || got != tt.want {
				t.Errorf("hint %v %v, want %v", got, err, tt.want)
			}
			events, _ := p.EventsToRegister(t.Context())
			if !slices.ContainsFunc(events, func(e fwk.ClusterEventWithHint) bool {
				return e.Event == fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Update} && e.QueueingHintFn != nil
			}) {
				t.Error("updates of bound pods are not registered")
			}
		})
	}
	if kube.LevelOf(version(pod, "3", shared)) != residency.Shared {
		t.Error("the test's instance is not Shared")
	}
}
