package live

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// gpuName matches names of resources, annotations and labels of GPUs, and the names by which virtual machines get PCI devices of NVIDIA.
var gpuName = regexp.MustCompile(`(?i)gpu|cuda|^nvidia\.com/[A-Z]{2}[0-9A-Z]*_`)

// looksLikeGPU reports whether a name is likely to be that of something that holds a GPU.
func looksLikeGPU(name string) bool {
	return gpuName.MatchString(name) && !strings.HasPrefix(name, "gshare") && !strings.HasSuffix(name, "_monitoring")
}

// knownResource reports whether a resource with the name of a GPU is one that holdOf reads.
func knownResource(name v1.ResourceName) bool {
	known := slices.Concat(otherVendors, []v1.ResourceName{
		nvidiaGPU, nvidiaShared, koordinatorGPU, koordinatorShared, koordinatorCore, koordinatorMemory, koordinatorRatio,
	})
	for _, s := range sizeResources {
		known = append(known, s.count, s.memory, s.percent, s.cores)
	}
	return slices.Contains(known, name) || strings.HasPrefix(string(name), nvidiaMIG)
}

// strangeResource returns a resource of a pod's containers that looks like one for GPUs but is not known, or an empty string.
func unknownGPUResource(pod *v1.Pod) string {
	for c := range containersOf(pod) {
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
			text, requested := string(name), quantityOf(c.Resources.Limits, name) > 0
			if requested && strings.Contains(text, "/") && looksLikeGPU(text) && !knownResource(name) {
				return text
			}
		}
	}
	return ""
}

// reachesGPU returns why a pod that requests no GPU in a known way may use one of its node, or an empty string.
func reachesGPU(pod *v1.Pod) string {
	if class := pod.Spec.RuntimeClassName; class != nil && strings.Contains(*class, "nvidia") {
		return "RuntimeClass " + *class
	}
	for c := range containersOf(pod) {
		for _, e := range c.Env {
			if e.Name == "NVIDIA_VISIBLE_DEVICES" && e.Value != "none" && e.Value != "void" {
				return "variable " + e.Name
			}
		}
	}
	for kind, keys := range map[string]map[string]string{"annotation ": pod.Annotations, "label ": pod.Labels} {
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			if looksLikeGPU(key) {
				return kind + key
			}
		}
	}
	return ""
}

// doubt records that a pod may hold GPUs in a way that is not known.
func (r *reader) doubt(pod *v1.Pod, why string) {
	where := ""
	if pod.Spec.NodeName != "" {
		where = " on node " + pod.Spec.NodeName
	}
	r.unknown = append(r.unknown, fmt.Sprintf("pod %s/%s%s: %s", pod.Namespace, pod.Name, where, why))
}

// checkPod records the pod if it may hold GPUs in a way that is not known. holds is whether it holds some in a known way.
func (r *reader) checkPod(pod *v1.Pod, holds bool) {
	if resource := unknownGPUResource(pod); resource != "" && pod.Spec.NodeName != "" {
		r.doubt(pod, "unknown resource "+resource)
		return
	}
	why := reachesGPU(pod)
	if holds || why == "" || r.byName[pod.Spec.NodeName] == nil {
		return
	}
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		r.tools++
		return
	}
	r.doubt(pod, why+", but no request of a GPU")
}

// checkNodes records nodes of which it is not known how their GPUs are shared, and those of which more seems to be held than there is.
func (r *reader) checkNodes() {
	held := map[string]packing.MilliGPU{}
	for _, p := range r.pods {
		held[p.Node] += p.Held
	}
	for _, g := range r.nodes {
		distinct := map[string]bool{}
		for _, s := range g.Slices {
			distinct[s.Device] = true
		}
		gpus := packing.MilliGPU(len(distinct)) * packing.WholeGPU
		switch {
		case g.unclear != "":
			r.unknown = append(r.unknown, "node "+g.Name+": "+g.unclear)
		case held[g.Name] > gpus:
			r.unknown = append(r.unknown, fmt.Sprintf("node %s: its pods add up to %.1f GPUs, but it has %d",
				g.Name, float64(held[g.Name])/float64(packing.WholeGPU), len(distinct)))
		case g.reserved > 0 && g.fractions == 0:
			r.unknown = append(r.unknown, fmt.Sprintf("node %s: %d GPUs are reserved, but no pod has a fraction of them",
				g.Name, g.reserved/packing.WholeGPU))
		}
	}
}
