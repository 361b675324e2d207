package sharing

import (
	v1 "k8s.io/api/core/v1"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// check is what can be said cheaply of stock Kubernetes' conditions, so that candidates are not wasted on nodes that its
// filters would refuse. The filters still run and have the last word.
type check struct {
	spec     *v1.Pod
	pod      *packing.Pod
	affinity nodeaffinity.RequiredNodeAffinity
	nodes    []fwk.NodeInfo
}

func newCheck(spec *v1.Pod, pod *packing.Pod, nodes []fwk.NodeInfo) *check {
	return &check{spec: spec, pod: pod, affinity: nodeaffinity.GetRequiredNodeAffinity(spec), nodes: nodes}
}

func (c *check) passes(i int) bool {
	info := c.nodes[i]
	has, used := info.GetAllocatable(), info.GetRequested()
	if lacks(int64(c.pod.CPU), has.GetMilliCPU()-used.GetMilliCPU()) || lacks(int64(c.pod.RAM), has.GetMemory()-used.GetMemory()) ||
		len(info.GetPods()) >= has.GetAllowedPodNumber() {
		return false
	}
	return c.welcome(info.Node())
}

// lacks: a pod that asks for none may go where more is taken than there is.
func lacks(wanted, free int64) bool { return wanted > 0 && wanted > free }

// welcome checks taints, cordoning and required node affinity.
func (c *check) welcome(node *v1.Node) bool {
	if node.Spec.Unschedulable && !corev1.TolerationsTolerateTaint(klog.Background(), c.spec.Spec.Tolerations, &cordon, comparisons) {
		return false
	}
	_, tainted := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, c.spec.Spec.Tolerations, hardTaint, comparisons)
	if tainted {
		return false
	}
	ok, err := c.affinity.Match(node)
	return ok && err == nil
}

// comparisons lets tolerations compare numbers. Where the scheduler's feature for it is off no such toleration exists, or its
// filter refuses it; a check stricter than that filter would leave out the best node.
const comparisons = true

// cordon is the taint that stands for a cordoned node: a pod that tolerates it may go there.
var cordon = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

func hardTaint(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}
