package plugins_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// member is a pod of a group, with the cycle state that it keeps from its simulation to its commit.
type member struct {
	pod   *v1.Pod
	state *framework.CycleState
}

func (w world) reserve(t *testing.T, m member) {
	t.Helper()
	assumed := m.pod.DeepCopy()
	assumed.Spec.NodeName = "n1"
	if m.state.IsPodGroupSchedulingCycle() {
		if err := w.snapshot.AssumePod(podInfo(t, assumed)); err != nil {
			t.Fatal(err)
		}
	}
	if status := w.RunReservePluginsReserve(t.Context(), m.state, assumed, "n1"); !status.IsSuccess() {
		t.Fatalf("reserve %s: %v", m.pod.Name, status)
	}
}

// simulate runs the filters and Reserve for the members as a group scheduling cycle does, and then undoes everything in
// reverse order. It returns how many members fit.
func (w world) simulate(t *testing.T, members []member) (fitted int) {
	t.Helper()
	var undo []func()
	for _, m := range members {
		if w.filter(t, m.state, m.pod).Len() != 0 {
			break
		}
		w.reserve(t, m)
		fitted++
		undo = append(undo, func() {
			assumed := m.pod.DeepCopy()
			assumed.Spec.NodeName = "n1"
			w.RunReservePluginsUnreserve(t.Context(), m.state, assumed, "n1")
			if err := w.snapshot.ForgetPod(klog.Background(), assumed); err != nil {
				t.Fatal(err)
			}
		})
	}
	for i := len(undo) - 1; i >= 0; i-- {
		undo[i]()
	}
	return fitted
}

func TestGroupSimulationAndCommit(t *testing.T) {
	w := newWorld(t, []*v1.Node{gpuNode(t, "n1", 2)}, placed(t, gpuPod("before", 50, 1), "n1", "n1-0"))
	var members []member
	for _, name := range []string{"a", "b", "c", "too-many"} {
		state := framework.NewCycleState()
		state.SetPodGroupSchedulingCycle(framework.NewCycleState())
		members = append(members, member{gpuPod(name, 45, 1), state})
		w.knows(t, members[len(members)-1].pod)
	}
	for range 2 { // the scheduler simulates one placement after another
		if fitted := w.simulate(t, members); fitted != 3 {
			t.Fatalf("%d members fit, want 3: one beside the pod that is there, two on the other GPU", fitted)
		}
		if w.ledger.Len() != 0 {
			t.Fatalf("%d assumed stay behind", w.ledger.Len())
		}
	}
	onSlice := map[string]int{}
	for _, m := range members[:3] {
		m.state.SetPodGroupSchedulingCycle(nil)
		w.reserve(t, m) // the snapshot shows none of the other members
		onSlice[w.sliceOf(m.pod.UID)]++
	}
	if onSlice["n1-0"] != 1 || onSlice["n1-1"] != 2 {
		t.Errorf("members on slices: %v", onSlice)
	}
}
