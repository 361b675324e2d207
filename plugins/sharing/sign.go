package sharing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
)

// signature is what SignPod adds: everything that Filter and Score read of a pod, and the demand that ranks are for.
type signature struct {
	Pod   string `json:"pod"`
	Epoch int64  `json:"epoch"`
}

// SignPod lets the scheduler reuse a pod's scores for the next equal one. Pods with preferences between nodes are not
// signed: their choice depends on other nodes.
func (p *Plugin) SignPod(_ context.Context, pod *v1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	doc := p.dossiers.of(pod)
	if doc.requestErr != nil || doc.placed || hasPreferences(pod) {
		return nil, fwk.NewStatus(fwk.Unschedulable, "not signed")
	}
	return []fwk.SignFragment{{Key: "gshare.dev/" + p.name, Value: signature{Pod: doc.key, Epoch: p.fleet.epoch}}}, nil
}

func digest(s string) types.UID {
	sum := sha256.Sum256([]byte(s))
	return types.UID(hex.EncodeToString(sum[:8]))
}
