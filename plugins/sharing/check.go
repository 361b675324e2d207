package sharing

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// check tests Kubernetes' own conditions as far as that is cheap, so that candidates are not wasted on nodes that stock filters would
// refuse. The stock filters still run and decide.
type check struct {
	eligibility nodeview.EligibilityCheck
	pod         *packing.Pod
	nodes       []fwk.NodeInfo
}

func newCheck(spec *v1.Pod, pod *packing.Pod, nodes []fwk.NodeInfo) *check {
	return &check{eligibility: nodeview.NewEligibilityCheck(spec), pod: pod, nodes: nodes}
}

// passes reports whether the pod may fit node i by CPU, memory, number of pods, taints and affinity.
func (c *check) passes(i int) bool {
	info := c.nodes[i]
	has, used := info.GetAllocatable(), info.GetRequested()
	if lacks(int64(c.pod.CPU), has.GetMilliCPU()-used.GetMilliCPU()) || lacks(int64(c.pod.RAM), has.GetMemory()-used.GetMemory()) ||
		len(info.GetPods()) >= has.GetAllowedPodNumber() {
		return false
	}
	eligibility, _ := c.eligibility.On(info.Node())
	return eligibility == nodeview.Eligible
}

// lacks reports whether less is free than the pod requests. A pod that requests none lacks none, even on an overcommitted node.
func lacks(wanted, free int64) bool { return wanted > 0 && wanted > free }
