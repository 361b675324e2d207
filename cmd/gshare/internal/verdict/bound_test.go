package verdict

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Pods that have a node, or want no share.
func TestBound(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*testing.T, *world)
		reason Reason
		said   string // in the summary, the fix, the places or what others said
	}{
		"placed":           {func(*testing.T, *world) {}, Placed, "ml/other/main"},
		"status":           {func(_ *testing.T, w *world) { w.pod.Annotations[kube.AnnotationEnforcementStatus] = status }, Placed, "not enforced: time"},
		"no status":        {func(*testing.T, *world) {}, Placed, "has not yet reported"},
		"slice gone":       {func(_ *testing.T, w *world) { w.slices[0].ID, w.slices[0].Device = "GPU-9", "GPU-9" }, Placed, "missing"},
		"nobody placed it": {func(_ *testing.T, w *world) { delete(w.pod.Annotations, kube.AnnotationPlacement) }, Unplaced, "somebody set spec.nodeName"},
		"another placed it": {func(_ *testing.T, w *world) {
			delete(w.pod.Annotations, kube.AnnotationPlacement)
			w.pod.Spec.SchedulerName = "default-scheduler"
		}, Unplaced, `scheduler "default-scheduler" bound it`},
		"malformed":      {func(_ *testing.T, w *world) { w.pod.Annotations[kube.AnnotationPlacement] = "{" }, BadPlacement, "cannot be trusted"},
		"of another pod": {func(_ *testing.T, w *world) { w.pod.UID = "other" }, BadPlacement, "not of this pod"},
		"kubelet refused it": {func(_ *testing.T, w *world) {
			w.pod.Status = v1.PodStatus{Phase: v1.PodFailed, Reason: "UnexpectedAdmissionError", Message: "no device IDs"}
		}, Ended, "kubelet: UnexpectedAdmissionError: no device IDs"},
		"cannot start": {func(_ *testing.T, w *world) {
			w.pod.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "PreStart", Message: "in use"}}}}
		}, Placed, "container main: PreStart: in use"},
		"no share": {func(_ *testing.T, w *world) {
			w.pod.Spec.Containers[0].Resources = v1.ResourceRequirements{Limits: v1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(1, resource.DecimalSI)}}
		}, NoShare, "instead of nvidia.com/gpu"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			w.beside(t, "other", share.MPS, 300, 1000, 1024)
			w.pod = w.beside(t, "asked", share.MPS, 500, 1000, 10240)
			w.others = w.others[:1]
			c.change(t, w)
			r := w.report(t)
			all := append([]string{r.Summary, r.Fix}, append(r.Said, r.Notes...)...)
			for _, p := range r.Places {
				for _, n := range p.Beside {
					all = append(all, n.Name)
				}
				if p.Missing {
					all = append(all, "missing")
				}
			}
			if r.Reason != c.reason || !slices.ContainsFunc(all, func(s string) bool { return strings.Contains(s, c.said) }) {
				t.Errorf("%s, nothing says %q: %q", r.Reason, c.said, all)
			}
		})
	}
}

const status = `{"v":1,"containers":[{"name":"main","since":"2030-01-01T00:00:00Z","memory":"hook","sms":"MPS","time":"hook","identity":"cgroup","missing":["time"]}]}`

// Only the pods that stand in the way are named, and each of them alone would do.
func TestLeave(t *testing.T) {
	w := newWorld()
	w.beside(t, "large", share.MPS, 600, 1000, 1024)
	w.beside(t, "small", share.MPS, 10, 1000, 1024)
	r := w.report(t)
	if got := r.Nodes[0].Leave; len(got) != 1 || got[0] != "ml/large" {
		t.Errorf("would fit without any of %v", got)
	}
	if got := r.Nodes[0].Slices[0].Holders; len(got) != 2 {
		t.Errorf("held by %v", got)
	}
}

// An instance that has given up its SM-time still holds memory, and explain says how much.
func TestSharedInstancesHoldMemory(t *testing.T) {
	const lowered = `{"v":1,"residency":{"seq":2,"level":"Shared"}}`
	w := newWorld()
	for name, mem := range map[string]int64{"first": 20000, "second": 12000} {
		pod := w.beside(t, name, share.MPS, 600, 1000, mem)
		pod.Annotations[kube.AnnotationResidency], pod.Annotations[kube.AnnotationResidencyReached] = lowered, lowered
	}
	r := w.report(t)
	if got := r.Nodes[0]; got.Obstacles[0].Reason != "insufficient GPU memory" || got.Slices[0].Shared != "2 Shared instances hold 32000 MiB" || len(got.Leave) != 2 {
		t.Errorf("%+v", got)
	}
	w.others = w.others[:1] // there is memory now, and all of the SM-time
	if r := w.report(t); r.Reason != Fits {
		t.Errorf("%s: %s", r.Reason, r.Summary)
	}
	asked := w.pod
	w.pod = w.beside(t, "bound", share.MPS, 500, 1000, 1024)
	w.others = append(w.others[:1], asked)
	if got := w.report(t).Places[0].Beside; len(got) != 1 || !strings.HasPrefix(got[0].Share, "Shared, without SM-time, ") {
		t.Errorf("beside %+v", got)
	}
}

// TestPlaceSaysWeights: a placed pod's report names the weights beside its share, and the pod of which they leave no memory is told to wait for it.
func TestPlaceSaysWeights(t *testing.T) {
	w := newWorld()
	holder := w.beside(t, "holder", share.MPS, 100, 1000, 1024)
	placed := holder.Annotations[kube.AnnotationPlacement]
	loaded := func(mib int64) string {
		return strings.TrimSuffix(placed, "}") + fmt.Sprintf(`,"weights":[{"digest":"sha256:%064x","memory":%d}]}`, 1, mib<<20)
	}
	holder.Annotations[kube.AnnotationPlacement] = loaded(w.slices[0].MemoryMiB - 1024)
	if got := w.report(t).Nodes[0]; got.Obstacles[0].Reason != "insufficient GPU memory" || len(got.Leave) != 1 {
		t.Errorf("%+v", got)
	}
	holder.Annotations[kube.AnnotationPlacement] = loaded(2634)
	w.pod, w.others = holder, nil
	if got := w.report(t).Places; len(got) != 1 || !strings.HasPrefix(got[0].Weights, "2634 MiB of weights") {
		t.Errorf("placed: %+v", got)
	}
}

// TestPlaceSaysKey: a placed pod's report names its anti-affinity, and a pod that it keeps off the GPU is told that it would fit without it.
func TestPlaceSaysKey(t *testing.T) {
	w := newWorld()
	holder := w.beside(t, "holder", share.MPS, 100, 1000, 1024)
	w.keyed(t, holder, "replica")
	w.pod.Annotations[kube.AnnotationAntiAffinity] = "replica"
	if got := w.report(t).Nodes[0]; got.Obstacles[0].Reason != "GPUs hold a share with the same anti-affinity" || len(got.Leave) != 1 {
		t.Errorf("%+v", got)
	}
	w.pod, w.others = holder, nil
	if got := w.report(t).Places; len(got) != 1 || got[0].Key != "replica" {
		t.Errorf("placed: %+v", got)
	}
}
