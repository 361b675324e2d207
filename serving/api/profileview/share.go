package profileview

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Recommended is the share of one GPU that a profile recommends.
type Recommended struct {
	SM, Quota int64 // percent
	Memory    share.Bytes
}

// RecommendedOf returns what a profile recommends, also one that is Stale. The error says why there is nothing, or which field has no such value.
func RecommendedOf(p *api.GPUProfile) (Recommended, error) {
	r := p.Status.Recommended
	switch {
	case p.DeletionTimestamp != nil:
		return Recommended{}, errors.New("it is being deleted")
	case !meta.IsStatusConditionTrue(p.Status.Conditions, api.ConditionComplete):
		return Recommended{}, errors.New("it is not Complete")
	case r == nil:
		return Recommended{}, errors.New("it recommends no share")
	case r.SM < 1 || r.SM > 100:
		return Recommended{}, fmt.Errorf("status.recommended.sm: %d is not from 1 to 100", r.SM)
	case r.Quota < 1 || r.Quota > 100:
		return Recommended{}, fmt.Errorf("status.recommended.quota: %d is not from 1 to 100", r.Quota)
	}
	memory, err := memoryOf(r.Memory)
	if err != nil {
		return Recommended{}, fmt.Errorf("status.recommended.%w", err)
	}
	return Recommended{SM: r.SM, Quota: r.Quota, Memory: memory}, nil
}

// isComplete reports whether a profile recommends a share.
func isComplete(p *api.GPUProfile) bool {
	return p.DeletionTimestamp == nil && p.Status.Recommended != nil && meta.IsStatusConditionTrue(p.Status.Conditions, api.ConditionComplete)
}

// IsStale reports whether something has changed since a profile was measured, and what.
func IsStale(p *api.GPUProfile) (message string, stale bool) {
	c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionStale)
	if c == nil || !meta.IsStatusConditionTrue(p.Status.Conditions, api.ConditionStale) {
		return "", false
	}
	return c.Message, true
}

// memoryOf returns an amount of device memory of 1Mi to 1Pi.
func memoryOf(text api.Quantity) (share.Bytes, error) {
	invalid := share.Invalid("memory", "%.64q is no quantity of 1Mi to 1Pi, such as 1525Mi", string(text))
	q, err := text.Parse()
	least, most := resource.NewQuantity(int64(share.MiB), resource.BinarySI), resource.NewQuantity(int64(share.MaxMemory), resource.BinarySI)
	if err != nil || q.Cmp(*least) < 0 || q.Cmp(*most) > 0 {
		return 0, invalid
	}
	return share.Bytes(q.Value()), nil
}
