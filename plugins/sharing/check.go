package sharing

import (
	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// check is what can be said cheaply of stock Kubernetes' conditions, so that candidates are not wasted on nodes that its
// filters would refuse. The filters still run and have the last word.
type check struct {
	visitor nodeview.Visitor
	pod     *packing.Pod
	nodes   []fwk.NodeInfo
}

func newCheck(spec *v1.Pod, pod *packing.Pod, nodes []fwk.NodeInfo) *check {
	return &check{visitor: nodeview.NewVisitor(spec), pod: pod, nodes: nodes}
}

func (c *check) passes(i int) bool {
	info := c.nodes[i]
	has, used := info.GetAllocatable(), info.GetRequested()
	if lacks(int64(c.pod.CPU), has.GetMilliCPU()-used.GetMilliCPU()) || lacks(int64(c.pod.RAM), has.GetMemory()-used.GetMemory()) ||
		len(info.GetPods()) >= has.GetAllowedPodNumber() {
		return false
	}
	welcome, _ := c.visitor.At(info.Node())
	return welcome == nodeview.Welcomed
}

// lacks: a pod that asks for none may go where more is taken than there is.
func lacks(wanted, free int64) bool { return wanted > 0 && wanted > free }
