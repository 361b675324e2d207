package kubernetes

import (
	"time"

	v1 "k8s.io/api/core/v1"

	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
)

// silence is how long a pod gets requests although nothing is heard of its node. Kubelets correct within seconds what is said of their pods after the API
// server was away; a node that is silent for longer may be gone, and its addresses may be those of other pods.
const silence = time.Minute

// serves reports whether a pod is Ready, or would be if its node had not fallen silent a short time ago.
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
