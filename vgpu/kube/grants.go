package kube

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Grants reports whether the placement has what the request asks for: every container, its number of vGPUs, and
// on each the SMs, the time and the memory. Limits are not held against it: they come from annotations, which may change
// after the share was frozen.
func Grants(p Placement, r share.Request) bool {
	return slices.EqualFunc(p.Containers, r.Containers, func(placed PlacedContainer, asked share.Container) bool {
		return placed.Name == asked.Name && len(placed.VGPUs) == asked.VGPUs &&
			!slices.ContainsFunc(placed.VGPUs, func(v PlacedVGPU) bool { return !sameRequests(v.Share, asked.Share) })
	})
}

func sameRequests(a, b share.Share) bool {
	return a.SMRequest == b.SMRequest && a.QuotaRequest == b.QuotaRequest && a.Memory == b.Memory
}
