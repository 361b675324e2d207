package agent

import (
	"context"
	"errors"
	"maps"
	"strings"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// claimReporter writes the enforcement statuses of shares that were requested by resource claims into the status of the claims. It is used
// by one goroutine.
type claimReporter struct {
	*Options
	grants      *grantStore
	enforcement *enforcementReporter
	written     map[types.UID]string // enforcement statuses by claim UID
}

// publish writes the statuses that differ from those written last.
func (r *claimReporter) publish(ctx context.Context) (all error) {
	present := map[types.UID]bool{}
	for _, g := range r.grants.all() {
		if !g.ByClaim() {
			continue
		}
		claim := g.ResourceClaim
		present[claim.UID] = true
		status := r.enforcement.statusOf(&g)
		text, err := kube.EncodeEnforcementStatus(kube.EnforcementStatus{Containers: []kube.ContainerEnforcement{status}})
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		if r.written[claim.UID] == text {
			continue
		}
		var devices []resourceapi.AllocatedDeviceStatus
		for i, v := range g.VGPUs {
			devices = append(devices, draplugin.DeviceStatus(r.Config.Kubernetes.NodeName, draplugin.Share{
				Slice: v.Slice, ShareID: claim.ShareIDs[i], Since: metav1.NewTime(g.Since), Changed: metav1.NewTime(time.Now()),
				Missing: strings.Join(status.Missing, "; "), Enforcement: text,
			}))
		}
		if err := r.Cluster.WriteClaimStatus(ctx, types.NamespacedName{Namespace: g.Namespace, Name: claim.Name}, claim.UID, devices); err != nil {
			all = errors.Join(all, err)
			continue
		}
		r.written[claim.UID] = text
	}
	maps.DeleteFunc(r.written, func(uid types.UID, _ string) bool { return !present[uid] })
	return all
}
