package sharing

import (
	"encoding/json"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// sign returns the signature as the scheduler compares it.
func sign(t *testing.T, p *Plugin, pod *v1.Pod) string {
	t.Helper()
	fragments, status := p.SignPod(t.Context(), pod)
	if !status.IsSuccess() {
		t.Fatalf("pod %s is not signed: %v", pod.Name, status)
	}
	text, err := json.Marshal(fragments)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEveryInputChangesTheSignature(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	request := func(name v1.ResourceName, q string) edit {
		return func(pod *v1.Pod) { pod.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(q) }
	}
	inputs := map[string]edit{
		"base":        func(*v1.Pod) {},
		"sm":          limit(kube.ResourceSM, 81),
		"quota":       limit(kube.ResourceQuota, 99),
		"mem":         limit(kube.ResourceMemory, 1026),
		"alone":       annotation(kube.AnnotationIsolation, "exclusive"),
		"cpu":         request(v1.ResourceCPU, "1001m"),
		"memory":      request(v1.ResourceMemory, "1025Mi"),
		"namespace":   func(pod *v1.Pod) { pod.Namespace = "other" },
		"sm limit":    annotation(kube.AnnotationSMLimit, "90"),
		"isolation":   annotation(kube.AnnotationIsolation, "mps"),
		"model":       annotation(kube.AnnotationModel, "A100"),
		"models":      annotation(kube.AnnotationModel, "A100,H200"),
		"slice":       annotation(kube.AnnotationSlice, "mig"),
		"own slice":   ownSlice("mig"),
		"own profile": ownSlice("1g.10gb"),
		"binpack":     annotation(kube.AnnotationPacking, "binpack"),
		"spread":      annotation(kube.AnnotationPacking, "spread"),
		"key":         annotation(kube.AnnotationAntiAffinity, "x"),
		"another key": annotation(kube.AnnotationAntiAffinity, "y"),
		"enforcement": annotation(kube.AnnotationEnforcement, "best-effort"),
		"vgpu": func(pod *v1.Pod) {
			limit(kube.ResourceVGPU, 2)(pod)
			annotation(kube.AnnotationIsolation, "exclusive")(pod)
		},
		"quota limit": func(pod *v1.Pod) {
			limit(kube.ResourceQuota, 40)(pod)
			annotation(kube.AnnotationQuotaLimit, "80")(pod)
		},
		"init container": func(pod *v1.Pod) {
			pod.Spec.InitContainers = []v1.Container{{Name: "init", Resources: v1.ResourceRequirements{
				Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("9")}}}}
		},
	}
	seen := map[string]string{}
	for name, e := range inputs {
		t.Run(name, func(t *testing.T) {
			ask := []edit{limit(kube.ResourceSM, 80), limit(kube.ResourceMemory, 1024), e}
			one, two := cpuPod("one-"+name, ask...), cpuPod("two-"+name, ask...)
			kube.Complete(one)
			kube.Complete(two)
			signature := sign(t, p, one)
			if signature != sign(t, p, two) {
				t.Errorf("%s: equal pods have different signatures", name)
			}
			if other, ok := seen[signature]; ok {
				t.Errorf("%s and %s have the same signature", name, other)
			}
			seen[signature] = name
		})
	}
}

// ownSlice asks for a kind of slice for the first container alone.
func ownSlice(kind string) edit {
	return func(pod *v1.Pod) { annotation(kube.AnnotationContainerSlice+pod.Spec.Containers[0].Name, kind)(pod) }
}

// What neither filters nor ranks read must not split pods into kinds: ranks are kept for a bounded number of them.
func TestUnreadInputsLeaveTheKey(t *testing.T) {
	plain, other := gpuPod("plain", 50, 50), gpuPod("other", 50, 50)
	annotation(kube.AnnotationClass, "slo")(other)
	annotation(kube.AnnotationWorkload, "resnet")(other)
	other.Spec.Containers[0].Name = "renamed"
	if decodePod(plain).key != decodePod(other).key {
		t.Errorf("the keys differ:\n%s\n%s", decodePod(plain).key, decodePod(other).key)
	}
}

// Half a MiB for each vGPU: the text form of a share rounds it away.
func TestSignatureDoesNotRound(t *testing.T) {
	a, b := gpuPod("a", 50, 50), gpuPod("b", 50, 50)
	docs := [2]*podInfo{decodePod(a), decodePod(b)}
	docs[1].Pod.Request.Containers[0].Share.Memory++
	if keyOf(&docs[0].Pod) == keyOf(&docs[1].Pod) {
		t.Error("a byte of memory makes no difference")
	}
}

func TestSignatureHasWeights(t *testing.T) {
	keys := map[string]string{}
	for _, list := range []string{"", "sha256:%064d=1Mi", "sha256:%064d=2Mi", "sha256:1%063d=1Mi"} {
		if list != "" {
			list = fmt.Sprintf(list, 0)
		}
		key := decodePod(gpuPod("a", 50, 50, annotation(kube.AnnotationWeights, list))).key
		if other, there := keys[key]; there {
			t.Errorf("%q and %q make no difference", list, other)
		}
		keys[key] = list
	}
}

func TestEpochChangesTheSignature(t *testing.T) {
	h := newHandle()
	p := newPlugin(t, h, 0)
	pod := gpuPod("a", 50, 50)
	before := sign(t, p, pod)
	h.snapshot = []fwk.NodeInfo{newNodeInfo(gpuNode(t, "n1", 8))}
	prefilter(t, p, pod) // sees GPUs for the first time, and freezes the demand
	after := sign(t, p, pod)
	if before == after {
		t.Error("the demand changed and the signature did not")
	}
	prefilter(t, p, pod)
	if sign(t, p, pod) != after {
		t.Error("nothing changed but the signature")
	}
}

func TestPodsThatAreNotSigned(t *testing.T) {
	h := newHandle()
	for i := range 3 {
		h.snapshot = append(h.snapshot, newNodeInfo(gpuNode(t, fmt.Sprint("n", i), 1)))
	}
	soft := func(pod *v1.Pod) {
		pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{WhenUnsatisfiable: v1.ScheduleAnyway}}
	}
	text := placed(t, gpuPod("a", 50, 50), "n1", "n1-0").Annotations[kube.AnnotationPlacement]
	p := newPlugin(t, h, 3)
	for name, pod := range map[string]*v1.Pod{
		"preferences": gpuPod("a", 50, 50, soft),
		"placed":      gpuPod("a", 50, 50, annotation(kube.AnnotationPlacement, text)),
		"forged":      gpuPod("a", 50, 50, annotation(kube.AnnotationPlacement, "{")),
		"unreadable":  cpuPod("a", limit(kube.ResourceSM, 50)),
	} {
		t.Run(name, func(t *testing.T) {
			pod.UID = "uid-a"
			pod.ResourceVersion = ""
			if _, status := p.SignPod(t.Context(), pod); status.IsSuccess() {
				t.Errorf("%s: signed", name)
			}
		})
	}
	// A batch would know no node but the candidates.
	pod := gpuPod("b", 50, 50)
	prefilter(t, p, pod)
	sign(t, p, pod)
	h.snapshot = append(h.snapshot, newNodeInfo(gpuNode(t, "n4", 1)))
	prefilter(t, p, pod)
	if _, status := p.SignPod(t.Context(), pod); status.IsSuccess() {
		t.Error("signed although candidates are named")
	}
}

// A queue that was full before a restart is signed before the first cycle has seen how many nodes there are.
func TestNotSignedBeforeTheNodesAreCounted(t *testing.T) {
	h := newHandle(newNodeInfo(gpuNode(t, "n1", 1)))
	p := newPlugin(t, h, 1)
	pod := gpuPod("a", 50, 50)
	if _, status := p.SignPod(t.Context(), pod); status.IsSuccess() {
		t.Error("signed although candidates may be named")
	}
	prefilter(t, p, pod)
	sign(t, p, pod)
}
