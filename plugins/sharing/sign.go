package sharing

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
)

// signature is what SignPod adds: everything that Filter and Score read of a pod, and the demand that ranks are for.
type signature struct {
	Pod   string `json:"pod"`
	Epoch int64  `json:"epoch"`
}

// SignPod lets the scheduler reuse a pod's scores for the next equal one. Pods with preferences between nodes are not
// signed: their choice depends on other nodes. Nor is any pod while candidates are named: a batch knows no node but the
// first pod's candidates, and once all of those have taken pods, a node outside may be better. The queue calls this from
// goroutines of its own, long before PreFilter.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	doc := p.dossiers.of(pod)
	if doc.RequestErr != nil || doc.Placed || hasPreferences(pod) || p.fleet.narrows.Load() {
		return nil, fwk.NewStatus(fwk.Unschedulable, "not signed")
	}
	return []fwk.SignFragment{{Key: "gshare.dev/" + p.name, Value: signature{Pod: doc.key, Epoch: p.fleet.epoch.Load()}}}, nil
}
