package faults

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/lab/audit"
	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// TestPlacementOverwritten overwrites the placement of a running pod. The scheduler that made the placement goes by its own
// records; one that starts afterwards must refuse the node, since it cannot know what is free there.
func TestPlacementOverwritten(t *testing.T) {
	l := newLab(t)
	before := l.ownScheduler("before", controlplane.SchedulerOptions{})
	l.addNodes(node("n", 1))
	l.addPods(gpuPod("victim", 50))
	l.waitBound("victim")
	written := l.pod("victim").Annotations[kube.AnnotationPlacement]
	l.annotatePod("victim", kube.AnnotationPlacement, `{"v":1,"garbage":true}`)
	l.addPods(gpuPod("beside", 25), gpuPod("too-large", 60))
	l.waitBound("beside")
	l.waitRefused("too-large")
	l.deletePod("too-large")

	before.Kill()
	l.ownScheduler("after", controlplane.SchedulerOptions{})
	l.addPods(gpuPod("doubtful", 25))
	l.waitRefused("doubtful")
	l.waitEvent(l.pod("doubtful").UID, "FailedScheduling", "a pod's gshare placement is malformed")
	report, _ := l.audit()
	if v := report.Violations; len(v) != 1 || v[0].Kind != audit.BadPlacement || v[0].Pod != "default/victim" {
		t.Errorf("violations are %v, want only that the placement of victim cannot be read", v)
	}
	l.addNodes(node("m", 1))
	l.waitBound("doubtful")
	l.wantNode("doubtful", "m")

	// With the victim's own placement restored, the node is trusted again, and nothing was given out twice.
	l.annotatePod("victim", kube.AnnotationPlacement, written)
	l.addPods(gpuPod("last", 25, on("n")))
	l.waitBound("last")
	l.finish()
}

// TestPlacementOfAnotherPod copies a placement from one pod to another: the JSON is valid, but the placement is not this
// pod's.
func TestPlacementOfAnotherPod(t *testing.T) {
	l := newLab(t)
	before := l.ownScheduler("before", controlplane.SchedulerOptions{})
	l.addNodes(node("n", 1))
	l.addPods(gpuPod("large", 60), gpuPod("small", 10))
	l.waitBound("large", "small")
	l.annotatePod("large", kube.AnnotationPlacement, l.pod("small").Annotations[kube.AnnotationPlacement])
	before.Kill()
	l.ownScheduler("after", controlplane.SchedulerOptions{})
	l.addPods(gpuPod("doubtful", 30))
	l.waitRefused("doubtful")
	l.waitEvent(l.pod("doubtful").UID, "FailedScheduling", "a pod's gshare placement is malformed")

	// Once the pod with the wrong placement is gone, its node can be used again.
	began := time.Now()
	l.deletePod("large")
	l.waitBound("doubtful")
	t.Logf("the waiting pod was bound %v after the other was deleted", time.Since(began))
	l.finish()
}

// TestPlacementRepaired checks that a pod waiting because of an unreadable placement is retried when that placement is
// restored.
func TestPlacementRepaired(t *testing.T) {
	l := newLab(t)
	before := l.ownScheduler("before", controlplane.SchedulerOptions{})
	l.addNodes(node("n", 1))
	l.addPods(gpuPod("victim", 50))
	l.waitBound("victim")
	written := l.pod("victim").Annotations[kube.AnnotationPlacement]
	l.annotatePod("victim", kube.AnnotationPlacement, "{")
	before.Kill()
	l.ownScheduler("after", controlplane.SchedulerOptions{})
	l.addPods(gpuPod("waiting", 50))
	l.waitRefused("waiting")
	began := time.Now()
	l.annotatePod("victim", kube.AnnotationPlacement, written)
	if !l.board.waitAtMost(l.ctx, wakeLimit, func(p pods) bool { return p["default/waiting"].Spec.NodeName != "" }) {
		t.Fatalf("not bound within %v of the repair", wakeLimit)
	}
	t.Logf("bound %v after the repair", time.Since(began))
	l.finish()
}
