package sharing

import (
	"errors"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// deriveOn derives a node of two GPUs that holds the pods.
func deriveOn(t *testing.T, p *Plugin, pods ...*v1.Pod) ([]int64, error) {
	t.Helper()
	node, err := p.deriveNode(newNodeInfo(gpuNode(t, "n1", 2), pods...), "", nil)
	return requested(node), err
}

// assumed records in the ledger the placement that the annotation of a placed pod would have.
func assumed(t *testing.T, p *Plugin, pod *v1.Pod) {
	t.Helper()
	placement, _, err := kube.PlacementOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	p.ledger.Reserve(ledger.Assumed{Placement: placement, Tenant: pod.Namespace}, ledger.NewCycle())
}

func TestLedgerCountsBeforeAnnotation(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	pod := gpuPod("a", 100, 30)
	assumed(t, p, placed(t, pod, "n1", "n1-1"))
	// Someone edited the annotation after the pod was bound.
	got, err := deriveOn(t, p, placed(t, pod, "n1", "n1-0"))
	if err != nil || !slices.Equal(got, []int64{0, 30}) {
		t.Errorf("requested %v, err %v; want what the ledger has", got, err)
	}
}

func TestPromiseForAnotherNodeDoesNotCount(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	pod := gpuPod("a", 100, 30)
	assumed(t, p, placed(t, pod, "n2", "n2-0"))
	got, err := deriveOn(t, p, placed(t, pod, "n1", "n1-1"))
	if err != nil || !slices.Equal(got, []int64{0, 30}) {
		t.Errorf("requested %v, err %v; want the annotation for this node", got, err)
	}
}

func TestPodBoundByHandIsPlacedVirtually(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	known := placed(t, gpuPod("a", 100, 60), "n1", "n1-0")
	got, err := deriveOn(t, p, known, gpuPod("b", 100, 50, on("n1")))
	if err != nil || !slices.Equal(got, []int64{60, 50}) {
		t.Errorf("requested %v, err %v; want the stranger on the other GPU", got, err)
	}
}

// TestPodBoundByHandClosesNoNode: a user who may create pods can set spec.nodeName. A pod that would not be admitted there does not count.
func TestPodBoundByHandClosesNoNode(t *testing.T) {
	full := []*v1.Pod{placed(t, gpuPod("a", 100, 60), "n1", "n1-0"), placed(t, gpuPod("b", 100, 60), "n1", "n1-1")}
	for name, stranger := range map[string]*v1.Pod{
		"never fits":        gpuPod("c", 1, 1, on("n1"), annotation(kube.AnnotationModel, "Nope")),
		"too large now":     gpuPod("c", 100, 60, on("n1")),
		"another class":     gpuPod("c", 1, 1, on("n1"), annotation(kube.AnnotationIsolation, string(share.Exclusive))),
		"empty placement":   gpuPod("c", 100, 60, on("n1"), annotation(kube.AnnotationPlacement, "")),
		"another namespace": gpuPod("c", 1, 1, on("n1"), func(pod *v1.Pod) { pod.Namespace = "stranger" }),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := deriveOn(t, newPlugin(t, newHandle(), 0), append(full, stranger)...)
			if err != nil || !slices.Equal(got, []int64{60, 60}) {
				t.Errorf("requested %v, err %v", got, err)
			}
		})
	}
}

func TestUnreadableRequestOfBoundPodIsDoubted(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	if _, err := deriveOn(t, p, cpuPod("a", limit(kube.ResourceSM, 10), on("n1"))); !errors.Is(err, nodeview.ErrUnknownUse) {
		t.Errorf("err %v", err)
	}
}

// Both nominees want a whole GPU and there is one left. The order of the pods in the NodeInfo must not matter.
func TestNomineesGoByPriorityThenUID(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	low, high := gpuPod("a", 100, 40, withPriority(1)), gpuPod("b", 100, 100, withPriority(2))
	twin := gpuPod("c", 100, 40, withPriority(1))
	for _, order := range [][]*v1.Pod{{low, high, twin}, {twin, high, low}, {high, twin, low}} {
		t.Run(order[0].Name+order[1].Name+order[2].Name, func(t *testing.T) {
			got, err := deriveOn(t, p, order...)
			if err != nil || !slices.Equal(got, []int64{100, 80}) {
				t.Errorf("requested %v, err %v", got, err)
			}
		})
	}
}

// A pod that runs comes before one that only may: else the nominee would take the place in which the stranger is.
func TestRunningStrangerGoesBeforeNominee(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	full := placed(t, gpuPod("a", 100, 100), "n1", "n1-0")
	_, err := deriveOn(t, p, full, gpuPod("b", 100, 60, withPriority(9)), gpuPod("c", 100, 60, on("n1")))
	if !errors.Is(err, nodeview.ErrNominated) {
		t.Errorf("err %v; want the nominee to be the one without room", err)
	}
}

func TestEndingPodsLeaveRoomForNomineesAlone(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	first := placed(t, gpuPod("a", 100, 100, withPriority(1), ending), "n1", "n1-0")
	second := placed(t, gpuPod("b", 100, 100, withPriority(5)), "n1", "n1-1")
	nominee := func(priority int32) *v1.Pod { return gpuPod("c", 100, 70, withPriority(priority)) }
	if got, err := deriveOn(t, p, first, second); err != nil || !slices.Equal(got, []int64{100, 100}) {
		t.Errorf("without a nominee an ending pod counts: requested %v, err %v", got, err)
	}
	if got, err := deriveOn(t, p, first, second, nominee(2)); err != nil || !slices.Equal(got, []int64{70, 100}) {
		t.Errorf("the nominee goes where the ending pod was: requested %v, err %v", got, err)
	}
	if _, err := deriveOn(t, p, first, second, nominee(1)); !errors.Is(err, nodeview.ErrNominated) {
		t.Errorf("an ending pod of the same priority: err %v", err)
	}
	// A pod bound by hand is no nominee, whatever its priority.
	if got, err := deriveOn(t, p, first, second, gpuPod("c", 100, 70, withPriority(9), on("n1"))); err != nil || !slices.Equal(got, []int64{100, 100}) {
		t.Errorf("a stranger: requested %v, err %v", got, err)
	}
}

func TestShareOnVanishedSliceTakesNothing(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	got, err := deriveOn(t, p, placed(t, gpuPod("a", 100, 30), "n1", "n1-7"))
	if err != nil || !slices.Equal(got, []int64{0, 0}) {
		t.Errorf("requested %v, err %v", got, err)
	}
}

func TestDeriveLeavesOutAndAdds(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	a, b := placed(t, gpuPod("a", 100, 30), "n1", "n1-0"), placed(t, gpuPod("b", 100, 20), "n1", "n1-1")
	assumed(t, p, a)
	assumed(t, p, b)
	// a is on the node and left out; b comes from the ledger alone.
	node, err := p.deriveNode(newNodeInfo(gpuNode(t, "n1", 2), a), a.UID, p.ledger.OnNode("n1"))
	if got := requested(node); err != nil || !slices.Equal(got, []int64{0, 20}) {
		t.Errorf("requested %v, err %v", got, err)
	}
	// Both are on the node: nothing counts twice.
	node, err = p.deriveNode(newNodeInfo(gpuNode(t, "n1", 2), a, b), "", p.ledger.OnNode("n1"))
	if got := requested(node); err != nil || !slices.Equal(got, []int64{30, 20}) {
		t.Errorf("requested %v, err %v", got, err)
	}
}
