package plugins_test

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// preempt runs DefaultPreemption, and returns the node it chose and the pods it deleted.
func preempt(t *testing.T, w world, pod *v1.Pod) (node string, victims []string) {
	t.Helper()
	w.knows(t, pod)
	state := framework.NewCycleState()
	statuses := w.filter(t, state, pod)
	args := &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 100, MinCandidateNodesAbsolute: 100}
	pl, err := defaultpreemption.New(t.Context(), args, w.Framework, feature.Features{})
	if err != nil {
		t.Fatal(err)
	}
	result, status := pl.PostFilter(t.Context(), state, pod, statuses)
	if result != nil && result.NominatingInfo != nil && status.IsSuccess() {
		node = result.NominatedNodeName
	}
	for _, action := range w.client.Actions() {
		if d, ok := action.(clienttesting.DeleteAction); ok {
			victims = append(victims, d.GetName())
		}
	}
	slices.Sort(victims)
	return node, victims
}

// TestPreemptionTakesTheNeededVictims: the dry run removes all pods of lower priority and then restores those that need not
// be preempted.
func TestPreemptionTakesTheNeededVictims(t *testing.T) {
	tests := map[string]struct {
		quota    int
		priority int32
		node     string
		victims  []string
	}{
		// n1-0 holds low (40 %) and mid (50 %), n1-1 holds big (90 %).
		"the least of one GPU":        {quota: 35, priority: 9, node: "n1", victims: []string{"low"}},
		"both of one GPU":             {quota: 100, priority: 9, node: "n1", victims: []string{"low", "mid"}},
		"only pods of lower priority": {quota: 35, priority: 2, node: "n1", victims: []string{"low"}},
		"not pods of equal priority":  {quota: 60, priority: 2, node: "", victims: nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pods := []*v1.Pod{
				placed(t, gpuPod("low", 40, 1), "n1", "n1-0"),
				placed(t, gpuPod("mid", 50, 2), "n1", "n1-0"),
				placed(t, gpuPod("big", 90, 3), "n1", "n1-1"),
			}
			w := newWorld(t, []*v1.Node{gpuNode(t, "n1", 2), gpuNode(t, "none", 0)}, pods...)
			node, victims := preempt(t, w, gpuPod("new", tt.quota, tt.priority))
			if node != tt.node || !slices.Equal(victims, tt.victims) {
				t.Errorf("node %q, victims %v; want %q, %v", node, victims, tt.node, tt.victims)
			}
		})
	}
}

func TestNoEvictionWhereNoneCanHelp(t *testing.T) {
	broken := gpuNode(t, "n1", 1)
	for key := range broken.Annotations {
		broken.Annotations[key] = "{"
	}
	w := newWorld(t, []*v1.Node{broken}, placed(t, gpuPod("low", 90, 1), "n1", "n1-0"))
	if node, victims := preempt(t, w, gpuPod("new", 50, 9)); node != "" || len(victims) != 0 {
		t.Errorf("node %q, victims %v", node, victims)
	}
}

// nominate puts the pod into the scheduling queue with n1 as its nominated node. The queue knows the spec of a nominated pod
// only while it holds the pod.
func nominate(t *testing.T, w world, pod *v1.Pod) world {
	t.Helper()
	w.knows(t, pod)
	w.queue.Add(t.Context(), pod)
	w.AddNominatedPod(klog.Background(), podInfo(t, pod), &fwk.NominatingInfo{NominatingMode: fwk.ModeOverride, NominatedNodeName: "n1"})
	return w
}

// TestRoomOfTheNomineeIsKept: while the victim terminates, the room of the nominated pod, which needs 60 % of a GPU at
// priority 5, is kept for it.
func TestRoomOfTheNomineeIsKept(t *testing.T) {
	victim := placed(t, gpuPod("victim", 100, 1), "n1", "n1-0")
	victim.DeletionTimestamp = &metav1.Time{}
	full := placed(t, gpuPod("full", 100, 3), "n1", "n1-1")
	nominee := gpuPod("nominee", 60, 5)
	tests := map[string]struct {
		others []*v1.Pod
		pod    *v1.Pod
		want   fwk.Code
	}{
		"the other GPU is free":        {[]*v1.Pod{victim}, gpuPod("a", 100, 1), fwk.Success},
		"the nominee itself":           {[]*v1.Pod{full}, nominee, fwk.Success},
		"the victim still counts":      {[]*v1.Pod{victim, full}, gpuPod("a", 20, 1), fwk.Unschedulable},
		"too large beside the nominee": {[]*v1.Pod{full}, gpuPod("a", 50, 5), fwk.Unschedulable},
		"fits beside the nominee":      {[]*v1.Pod{full}, gpuPod("a", 30, 5), fwk.Success},
		"of higher priority":           {[]*v1.Pod{full}, gpuPod("a", 50, 6), fwk.Success},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := nominate(t, newWorld(t, []*v1.Node{gpuNode(t, "n1", 2)}, tt.others...), nominee)
			statuses := w.filter(t, framework.NewCycleState(), tt.pod)
			if got := statuses.Len() == 0; got != (tt.want == fwk.Success) || !got && statuses.Get("n1").Code() != tt.want {
				t.Errorf("status %v, want %v", statuses.Get("n1"), tt.want)
			}
		})
	}
}
