package profiles

import (
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// A server is measured with several quotas: that of its share, and smaller ones. Its annotation kube.AnnotationTrialQuota says which one the agent of
// its node should enforce now. The agent reports the enforced one in the pod's enforcement status.

// canNarrow reports whether a server can be given less time than its share has. The agent would have to do that, but it does not manage a whole GPU.
func canNarrow(target *v1.Pod) bool {
	p, present, err := kube.PlacementOf(target)
	return err == nil && present && slices.ContainsFunc(p.Containers, func(c kube.PlacedContainer) bool {
		return c.Name == target.Spec.Containers[0].Name && c.VGPUs[0].Class == share.MPS
	})
}

// ownQuota returns the quota of a server's share, in percent.
func ownQuota(target *v1.Pod) int64 {
	quota := target.Spec.Containers[0].Resources.Limits[kube.ResourceQuota]
	return quota.Value()
}

// wantedQuota returns the quota that a server should have now.
func wantedQuota(target *v1.Pod) int64 {
	if quota, err := strconv.ParseInt(target.Annotations[kube.AnnotationTrialQuota], 10, 64); err == nil {
		return quota
	}
	return ownQuota(target)
}

// enforcedQuota returns the quota that a server has now according to the agent.
func enforcedQuota(target *v1.Pod) int64 {
	status, present, err := kube.EnforcementStatusOf(target)
	if err == nil && present {
		for _, c := range status.Containers {
			if c.Name == target.Spec.Containers[0].Name && c.QuotaPercent != 0 {
				return c.QuotaPercent
			}
		}
	}
	return ownQuota(target)
}

// withQuota returns a copy of the server's pod that asks for the given quota.
func withQuota(target *v1.Pod, quota int64) *v1.Pod {
	changed := target.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, kube.AnnotationTrialQuota, strconv.FormatInt(quota, 10)) // annotations may be nil: its owner may remove all
	return changed
}
