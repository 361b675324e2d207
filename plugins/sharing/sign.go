package sharing

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// signature is the fragment that SignPod returns: everything that Filter and Score read of a pod, and the epoch of the node ranks.
type signature struct {
	Pod   string `json:"pod"`
	Epoch int64  `json:"epoch"`
}

// SignPod returns a signature with which the scheduler reuses a pod's scores for the next pod that is equal to it. Pods with soft
// constraints are not signed, as their node depends on other nodes. Nor is any pod while nodes are narrowed: a batch sees only the
// first pod's candidates, and once those have taken pods, a node that was left out may be better. The scheduling queue calls it
// from its own goroutines, before PreFilter.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	doc := p.podInfos.get(pod)
	if doc.RequestErr != nil || doc.Placed || hasPreferences(pod) || p.fleet.narrows.Load() {
		return nil, fwk.NewStatus(fwk.Unschedulable, "not signed")
	}
	return []fwk.SignFragment{{Key: "gshare.dev/" + p.name, Value: signature{Pod: doc.key, Epoch: p.fleet.epoch.Load()}}}, nil
}
