package faults

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/test/controlplane"
)

// TestNodeVanishesInMidBurst deletes a node while pods are being bound to it, and later creates it again under the same
// name. The pods bound to it then hold their shares again.
func TestNodeVanishesInMidBurst(t *testing.T) {
	l := newLab(t)
	gate := newTurnstile()
	l.ownScheduler("vanish", controlplane.SchedulerOptions{Server: l.startProxy(gate.decide).url})
	l.addNodes(nodes("n", 6, 2)...)
	pods := gpuPods("p", 6*2*4, 25)
	l.addInBackground(pods)
	gate.let(15)
	l.waitCount(15)
	l.must(l.client.CoreV1().Nodes().Delete(l.ctx, "n-3", metav1.DeleteOptions{}))
	gate.let(2 * len(pods))
	l.waitSettled(len(pods))
	report, _ := l.audit()
	t.Logf("%d pods are on the node that is gone", len(report.Orphans))
	if bound := l.wantSound(); bound != 5*2*4+len(report.Orphans) {
		t.Errorf("%d pods are bound, %d of them to the node that is gone; %d have room elsewhere", bound, len(report.Orphans), 5*2*4)
	}
	l.addNodes(node("n-3", 2))
	l.waitBound(names(pods)...)
	l.wantFull()
}

// TestSliceFallsIll checks that a slice that becomes unhealthy gets no new shares and keeps those it has.
func TestSliceFallsIll(t *testing.T) {
	l := newLab(t)
	l.sharedScheduler()
	l.addNodes(node("n", 2))
	l.addPods(gpuPod("first", 60), gpuPod("second", 60))
	l.waitBound("first", "second")
	ill := inventory("n", 2)
	ill.Slices[0].Healthy = false
	l.tellScheduler("n", ill)
	l.addPods(gpuPod("x", 40), gpuPod("y", 40))
	l.waitSettled(4)
	if bound := l.wantSound(); bound != 3 {
		t.Errorf("%d pods are bound, want one more besides the first two", bound)
	}
	ill.Slices[1].Healthy = false
	l.tellScheduler("n", ill)
	l.addPods(gpuPod("no-gpu", 1))
	l.waitEvent(l.pod("no-gpu").UID, "FailedScheduling", "matching GPUs are unhealthy")
	l.deletePod("no-gpu")

	l.setInventory("n", encode(inventory("n", 2)))
	l.waitBound("x", "y")
	l.addPods(gpuPod("z", 10))
	l.waitRefused("z")
	l.finish("z")
}

// TestSliceIsRemovedAndAddedAgain checks that the shares on a slice are counted again when the slice comes back.
func TestSliceIsRemovedAndAddedAgain(t *testing.T) {
	l := newLab(t)
	l.sharedScheduler()
	l.addNodes(node("n", 2))
	l.addPods(gpuPod("first", 60), gpuPod("second", 60))
	l.waitBound("first", "second")
	whole := inventory("n", 2)
	part := whole
	part.Slices = whole.Slices[:1]
	l.tellScheduler("n", part)
	l.addPods(gpuPod("x", 40), gpuPod("y", 40))
	l.waitSettled(4)
	report, _ := l.audit()
	if len(report.Orphans) != 1 {
		t.Errorf("%d shares are on a slice that is gone, want 1", len(report.Orphans))
	}
	if bound := l.wantSound(); bound != 3 {
		t.Errorf("%d pods are bound, want one more besides the first two", bound)
	}
	l.setInventory("n", encode(whole))
	l.waitBound("x", "y")
	l.addPods(gpuPod("z", 10))
	l.waitRefused("z")
	l.finish("z")
}
