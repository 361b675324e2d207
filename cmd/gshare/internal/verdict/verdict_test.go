package verdict

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// failure is one way in which a pod does not get its share: what breaks, what must be said, and what mends it.
type failure struct {
	breaks  func(*testing.T, *world)
	reason  Reason
	summary string // part of it
	fix     string // part of it
	change  string // field of the first change; "" is none
	mends   func(*world)
}

func limits(w *world) v1.ResourceList { return w.pod.Spec.Containers[0].Resources.Limits }

func annotate(field, value string) func(*testing.T, *world) {
	return func(_ *testing.T, w *world) { w.pod.Annotations[field] = value }
}

func set(list v1.ResourceList, name v1.ResourceName, n int64) {
	list[name] = *resource.NewQuantity(n, resource.DecimalSI)
}

// smaller returns the pod with another share.
func smaller(sm, quota, mem int64) func(*world) {
	return func(w *world) { w.pod = podOf("asked", sm, quota, mem) }
}

func rulesOf(gamma int64) *kube.Rules {
	return &kube.Rules{GammaPercent: gamma, Window: metav1.Duration{Duration: 100 * time.Millisecond}}
}

func alone(w *world) { w.others = nil }

var failures = map[string]failure{
	"memory is assumed": {
		func(t *testing.T, w *world) { w.beside(t, "a", share.MPS, 100, 1000, 35840) },
		NoNode, "1 insufficient GPU memory", "gshare/mem", share.FieldMemory, smaller(50, 100, 5120)},
	"time is assumed": {
		func(t *testing.T, w *world) { w.beside(t, "a", share.MPS, 600, 1000, 1024) },
		NoNode, "1 insufficient GPU SM-time", "gshare/sm", share.FieldSM, smaller(40, 100, 10240)},
	"larger than any slice": {
		func(_ *testing.T, w *world) { w.pod = podOf("asked", 50, 100, 50000) },
		NoNode, "1 share larger than a slice", "ask for less", share.FieldMemory, smaller(50, 100, 40960)},
	"no number of vGPUs": {
		func(_ *testing.T, w *world) {
			delete(limits(w), kube.ResourceVGPU)
			delete(w.pod.Spec.Containers[0].Resources.Requests, kube.ResourceVGPU)
		},
		BadRequest, "gshare/vgpu", "set gshare/vgpu", "", func(w *world) {
			set(limits(w), kube.ResourceVGPU, 1)
			set(w.pod.Spec.Containers[0].Resources.Requests, kube.ResourceVGPU, 1)
		}},
	"share of an init container": {
		func(_ *testing.T, w *world) {
			w.pod.Spec.InitContainers = []v1.Container{*w.pod.Spec.Containers[0].DeepCopy()}
			w.pod.Spec.InitContainers[0].Name = "warm"
		},
		BadRequest, "init container that ends may not ask", "create the pod again", "", func(w *world) { w.pod.Spec.InitContainers = nil }},
	"another scheduler": {
		func(_ *testing.T, w *world) { w.pod.Spec.SchedulerName = v1.DefaultSchedulerName },
		Scheduler, `"default-scheduler", which is none of gshare's (gshare, gshare-rectangle, gshare-complementary)`, "schedulerName: gshare", "",
		func(w *world) { w.pod.Spec.SchedulerName = "gshare" }},
	"held by a gate": {
		func(_ *testing.T, w *world) {
			w.pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "quota.example/wait"}}
		},
		Gated, "quota.example/wait", "remove the gate", "", func(w *world) { w.pod.Spec.SchedulingGates = nil }},
	"forged placement": {
		annotate(kube.AnnotationPlacement, "{}"),
		Forged, "only the scheduler writes", "without that annotation", "", func(w *world) { delete(w.pod.Annotations, kube.AnnotationPlacement) }},
	"no inventory": {
		func(_ *testing.T, w *world) { w.slices = nil },
		NoNode, "1 no gshare GPUs", "run the node agent there", "", func(w *world) { w.slices = newWorld().slices }},
	"malformed inventory": {
		func(_ *testing.T, w *world) { w.node.Annotations = map[string]string{kube.AnnotationInventory: "{"} },
		NoNode, "1 gshare inventory is malformed", "look at its log", "", func(w *world) { w.node.Annotations = nil }},
	"limits above the node's own bound": {
		func(t *testing.T, w *world) {
			w.rules = rulesOf(100)
			w.pod.Annotations[kube.AnnotationSMLimit] = "60"
			w.beside(t, "a", share.Elastic, 500, 1000, 1024)
		},
		NoNode, "1 limits would exceed the oversubscription bound", "lower gshare.dev/sm-limit", string(kube.ResourceSM), func(w *world) { w.rules = rulesOf(150) }},
	"slice closed without a reason": {
		func(_ *testing.T, w *world) { w.slices[0].Healthy = false },
		NoNode, "1 matching GPUs are unhealthy", "no reason given: see the agent's log", "", func(w *world) { w.slices[0].Healthy = true }},
	"failed slice":                  closedFor(kube.ReasonFault, "the device has failed"),
	"cordoned slice":                closedFor(kube.ReasonCordoned, "an administrator has closed it"),
	"slice that others use":         closedFor(kube.ReasonUsed, "processes without a share use it"),
	"slice of an agent that ends":   closedFor(kube.ReasonClosing, "its agent is being replaced: wait some seconds"),
	"slice of an agent that starts": closedFor(kube.ReasonUnwatched, "the kubelet does not watch"),
	"class cannot be enforced": {
		func(_ *testing.T, w *world) { w.slices[0].Classes = []share.Isolation{share.Exclusive} },
		NoNode, "1 isolation class cannot be enforced", "MPS has to work", share.FieldIsolation, func(w *world) { w.pod.Annotations[kube.AnnotationIsolation] = "exclusive" }},
	"no model store": {
		annotate(kube.AnnotationWeights, "sha256:"+strings.Repeat("a", 64)+"=1Mi"),
		NoNode, "1 no model store for weights", "switch on the node's model store", "", func(w *world) { delete(w.pod.Annotations, kube.AnnotationWeights) }},
	"slice of another class": {
		func(t *testing.T, w *world) {
			w.beside(t, "a", share.MPS, 100, 1000, 1024)
			w.pod.Annotations[kube.AnnotationIsolation] = "elastic"
		},
		NoNode, "1 GPUs serve another isolation class", "one isolation class at a time", share.FieldIsolation,
		func(w *world) { delete(w.pod.Annotations, kube.AnnotationIsolation) }},
	"the same key on the GPU": {
		func(t *testing.T, w *world) {
			w.keyed(t, w.beside(t, "a", share.MPS, 100, 1000, 1024), "replica")
			w.pod.Annotations[kube.AnnotationAntiAffinity] = "replica"
		},
		NoNode, "1 GPUs hold a share with the same anti-affinity", "the same key ends there", share.FieldAntiAffinity,
		func(w *world) { delete(w.pod.Annotations, kube.AnnotationAntiAffinity) }},
	"another model": {
		annotate(kube.AnnotationModel, "H200"),
		NoNode, "1 no GPU of an accepted model", "gshare.dev/model", share.FieldModel, func(w *world) { w.pod.Annotations[kube.AnnotationModel] = "A100,H200" }},
	"another kind of slice": {
		annotate(kube.AnnotationSlice, "1g.10gb"),
		NoNode, "1 no slice of the requested kind", "gshare.dev/slice", share.FieldSlice, func(w *world) { delete(w.pod.Annotations, kube.AnnotationSlice) }},
	"another namespace's slice": {
		func(t *testing.T, w *world) { w.beside(t, "a", share.MPS, 100, 1000, 1024).Namespace = "web" },
		NoNode, "1 GPUs are shared by another namespace", "tenancy: mixed", "", alone},
	"capacity is not advertised": {
		func(_ *testing.T, w *world) { w.dropped = kube.ResourceMemory },
		NoNode, "1 insufficient gshare/mem", "the node advertises none", "", func(w *world) { w.dropped = "" }},
	"device IDs used up": {
		func(t *testing.T, w *world) {
			w.slices[0].MaxShares = 1
			w.beside(t, "a", share.MPS, 100, 1000, 1024)
		},
		NoNode, "1 insufficient gshare/vgpu", "every vGPU uses one of the node's gshare/vgpu", "", alone},
	"cordoned node": {
		func(_ *testing.T, w *world) { w.node.Spec.Unschedulable = true },
		NoNode, "1 the node is cordoned", "kubectl uncordon n1", "", func(w *world) { w.node.Spec.Unschedulable = false }},
	"tainted node": {
		func(_ *testing.T, w *world) {
			w.node.Spec.Taints = []v1.Taint{{Key: "lab", Value: "yes", Effect: v1.TaintEffectNoSchedule}}
		},
		NoNode, "1 untolerated taint", "tolerate the taint lab=yes:NoSchedule", "", func(w *world) {
			w.pod.Spec.Tolerations = []v1.Toleration{{Key: "lab", Operator: v1.TolerationOpExists}}
		}},
	"another node is selected": {
		func(_ *testing.T, w *world) { w.pod.Spec.NodeSelector = map[string]string{v1.LabelHostname: "n2"} },
		NoNode, "1 node selector or affinity", "nodeSelector", "", func(w *world) { w.pod.Spec.NodeSelector = nil }},
	"no CPU": {
		func(_ *testing.T, w *world) {
			w.pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("9")
		},
		NoNode, "1 insufficient cpu", "request less cpu", "", func(w *world) {
			w.pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("8")
		}},
	"a pod beside it that nobody placed": {
		func(t *testing.T, w *world) {
			delete(w.beside(t, "stray", share.MPS, 900, 1000, 1024).Annotations, kube.AnnotationPlacement)
			delete(w.beside(t, "second", share.MPS, 900, 1000, 1024).Annotations, kube.AnnotationPlacement)
		},
		NoNode, "1 insufficient GPU SM-time", "gshare/sm", share.FieldSM, alone},
}

func closedFor(reason kube.Reason, fix string) failure {
	return failure{
		func(_ *testing.T, w *world) { w.slices[0].Healthy, w.slices[0].Reason = false, reason },
		NoNode, "1 matching GPUs are unhealthy", string(reason) + ": " + fix, "",
		func(w *world) { w.slices[0].Healthy, w.slices[0].Reason = true, "" },
	}
}

// TestClosedSlices: of slices that are closed only those count that the pod could have, each with its own reason.
func TestClosedSlices(t *testing.T) {
	w := newWorld()
	closed := func(id, model string, reason kube.Reason) kube.Slice {
		s := w.slices[0]
		s.ID, s.Device, s.Model, s.Healthy, s.Reason = id, id, model, false, reason
		return s
	}
	w.slices = []kube.Slice{closed("GPU-1", "A100", kube.ReasonFault), closed("GPU-2", "A100", kube.ReasonCordoned), closed("GPU-3", "H200", kube.ReasonUsed)}
	w.pod.Annotations[kube.AnnotationModel] = "A100"
	r := w.report(t)
	if !strings.Contains(r.Fix, "cordoned: ") || !strings.Contains(r.Fix, "; fault: ") || strings.Contains(r.Fix, "used") {
		t.Errorf("fix %q", r.Fix)
	}
	var got []string
	for _, s := range r.Nodes[0].Slices {
		got = append(got, s.Closed)
	}
	if !slices.Equal(got, []string{"fault", "cordoned", ""}) {
		t.Errorf("closed: %q", got)
	}
}

// Each failure is told by its true reason and a fix, and once it is mended the pod is said to fit: a verdict that never
// changed would be worth nothing.
func TestFailures(t *testing.T) {
	if r := newWorld().report(t); r.Reason != Fits {
		t.Fatalf("a pod with nothing in its way: %+v", r)
	}
	for name, f := range failures {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			f.breaks(t, w)
			r := w.report(t)
			if r.Reason != f.reason || !strings.Contains(r.Summary, f.summary) || !strings.Contains(r.Fix, f.fix) || r.Fix == "" {
				t.Errorf("%s: %q, fix %q", r.Reason, r.Summary, r.Fix)
			}
			switch {
			case f.change == "" && len(r.Changes) > 0:
				t.Errorf("changes that cannot help: %+v", r.Changes)
			case f.change != "" && (len(r.Changes) == 0 || r.Changes[0].Edits[0].Field != f.change):
				t.Errorf("changes %+v, want %s", r.Changes, f.change)
			}
			f.mends(w)
			if r := w.report(t); r.Reason != Fits {
				t.Errorf("mended, but %s: %s", r.Reason, r.Summary)
			}
		})
	}
}
