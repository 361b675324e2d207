package kubernetes

import (
	"time"

	v1 "k8s.io/api/core/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// silence is how long a pod still gets requests after its node has fallen silent. After the API server has been unreachable, kubelets correct the
// conditions of their pods within seconds. A node that is silent for longer may be gone, and its addresses may belong to other pods.
const silence = time.Minute

// serves reports whether a pod is Ready, or would be if its node had not recently fallen silent.
func (p *pod) serves() bool {
	address, ready := api.Address(p.Pod)
	if ready || address == "" || !api.OnSilentNode(p.Pod) {
		return ready
	}
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return time.Since(c.LastTransitionTime.Time) < silence
		}
	}
	return false
}
