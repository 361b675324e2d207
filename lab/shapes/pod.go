package shapes

import (
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Pod is the request of a pod: the fraction SM of the SMs during the fraction Quota of every window, and device memory.
type Pod struct {
	SM, Quota share.PerMille
	Memory    share.Bytes
}

// Area returns the SM-time (SM x quota) that the pod requests.
func (p Pod) Area() share.Area { return share.Area(p.SM) * share.Area(p.Quota) }

// Check returns an error if the pod does not fit even an empty GPU with the given memory.
func (p Pod) Check(memory share.Bytes) error {
	switch {
	case p.SM < 1 || p.SM > share.Whole:
		return fmt.Errorf("sm %s is not above 0 and at most 100%%", p.SM.Percent())
	case p.Quota < 1 || p.Quota > share.Whole:
		return fmt.Errorf("quota %s is not above 0 and at most 100%%", p.Quota.Percent())
	case p.Memory < 0 || p.Memory > memory:
		return fmt.Errorf("memory of %d MiB is not between 0 and the GPU's %d MiB", p.Memory/share.MiB, memory/share.MiB)
	}
	return nil
}

func (p Pod) item() slot.Item { return slot.Item{SM: p.SM, Quota: p.Quota} }
