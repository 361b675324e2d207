package plugins_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/registry"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// doing sets the workload annotation of the pod.
func doing(workload string, pod *v1.Pod) *v1.Pod {
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[kube.AnnotationWorkload] = workload
	return pod
}

// best returns the node with the highest score, and the score.
func (w world) best(t *testing.T, state fwk.CycleState, pod *v1.Pod) (string, int64) {
	t.Helper()
	nodes, err := w.snapshot.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	if status := w.RunPreScorePlugins(t.Context(), state, pod, nodes); !status.IsSuccess() {
		t.Fatal(status)
	}
	scores, status := w.RunScorePlugins(t.Context(), state, pod, nodes)
	if !status.IsSuccess() {
		t.Fatal(status)
	}
	top := scores[0]
	for _, s := range scores {
		if s.TotalScore > top.TotalScore {
			top = s
		}
	}
	return top.Name, top.TotalScore
}

// TestComplementaryPackingFollowsWorkloads: a pod goes to the node and the GPU that host its workload, even though it would
// fill up another GPU. If no GPU hosts its workload, it goes to that other GPU.
func TestComplementaryPackingFollowsWorkloads(t *testing.T) {
	mate := doing("web", placed(t, gpuPod("mate", 30, 1), "n1", "n1-1"))
	crowd := doing("batch", placed(t, gpuPod("crowd", 60, 1), "n2", "n2-0"))
	for workload, want := range map[string]struct{ node, slice string }{"web": {"n1", "n1-1"}, "other": {"n2", "n2-0"}} {
		t.Run(workload, func(t *testing.T) {
			w := newWorldOf(t, registry.ComplementaryPacking,
				[]*v1.Node{gpuNode(t, "n1", 2), gpuNode(t, "n2", 2), gpuNode(t, "n3", 2)}, mate, crowd)
			pod := doing(workload, gpuPod("new", 30, 1))
			w.knows(t, pod)
			state := framework.NewCycleState()
			if refused := w.filter(t, state, pod); refused.Len() != 0 {
				t.Fatalf("%d nodes refuse", refused.Len())
			}
			node, points := w.best(t, state, pod)
			if node != want.node || points != 1200*fwk.MaxScore {
				t.Errorf("node %s with %d points, want %s", node, points, want.node)
				return
			}
			if status := w.RunReservePluginsReserve(t.Context(), state, pod, node); !status.IsSuccess() {
				t.Fatal(status)
			}
			if got := w.sliceOf(pod.UID); got != want.slice {
				t.Errorf("on %s, want %s", got, want.slice)
			}
		})
	}
}
