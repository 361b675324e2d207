package sharing

import (
	v1 "k8s.io/api/core/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	componentversion "k8s.io/component-base/version"
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// precheck tests a pod against those conditions of Kubernetes that are cheap to test, so that nodes that the stock filters would refuse are not
// chosen as candidates. The stock filters still run, and decide.
type precheck struct {
	eligibility   nodeview.EligibilityCheck
	features      nodedeclaredfeatures.FeatureSet // features that the pod needs of the kubelet
	needsFeatures bool                            // whether it needs any
	spec          *v1.Pod
	pod           *packing.Pod
	nodes         []fwk.NodeInfo
}

func newPrecheck(spec *v1.Pod, pod *packing.Pod, nodes []fwk.NodeInfo) *precheck {
	c := &precheck{eligibility: nodeview.NewEligibilityCheck(spec), spec: spec, pod: pod, nodes: nodes}
	features, err := nodedeclaredfeatures.DefaultFramework.InferForPodScheduling(&nodedeclaredfeatures.PodInfo{Spec: &spec.Spec}, release)
	c.features, c.needsFeatures = features, err == nil && !features.IsEmpty()
	return c
}

// release is the version of Kubernetes for which the stock filter infers the features that pods need. It is nil if that version cannot be parsed;
// then no features are checked.
var release, _ = utilversion.Parse(componentversion.Get().String())

// passes reports whether the i-th node has the CPU, the memory, room for one more pod, and the kubelet features that the pod needs, and whether its
// taints and the pod's node affinity let the pod run there.
func (c *precheck) passes(i int) bool {
	info := c.nodes[i]
	has, used := info.GetAllocatable(), info.GetRequested()
	if lacks(int64(c.pod.CPU), has.GetMilliCPU()-used.GetMilliCPU()) || lacks(int64(c.pod.RAM), has.GetMemory()-used.GetMemory()) ||
		len(info.GetPods()) >= has.GetAllowedPodNumber() {
		return false
	}
	if c.needsFeatures {
		if has, err := c.features.IsSubset(info.GetNodeDeclaredFeatures()); err == nil && !has {
			return false
		}
	}
	eligibility, _ := c.eligibility.Check(info.Node())
	return eligibility == nodeview.Eligible
}

// hasResources reports whether the i-th node has the other resources that the pod requests: ephemeral storage, and gshare's and other extended
// resources. They are not part of passes, because a profile may tell the stock filter to ignore some of them.
func (c *precheck) hasResources(i int) bool {
	has, used := c.nodes[i].GetAllocatable(), c.nodes[i].GetRequested()
	for name, q := range resource.PodRequests(c.spec, resource.PodResourcesOptions{}) {
		var free int64
		switch name {
		case v1.ResourceCPU, v1.ResourceMemory:
			continue
		case v1.ResourceEphemeralStorage:
			free = has.GetEphemeralStorage() - used.GetEphemeralStorage()
		default:
			free = has.GetScalarResources()[name] - used.GetScalarResources()[name]
		}
		if lacks(q.Value(), free) {
			return false
		}
	}
	return true
}

// lacks reports whether less of a resource is free than the pod wants. A pod that wants none lacks none, even on an overcommitted node.
func lacks(wanted, free int64) bool { return wanted > 0 && wanted > free }
