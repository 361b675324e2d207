package standalone

import (
	"fmt"
	"sort"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// suggestions returns, as flags of gshare run, the largest SMs, quota and memory with which the request would fit now if only that one
// were smaller.
func (n *Node) suggestions(node *packing.Node, pod *packing.Pod) (list []string) {
	c := pod.Request.Containers[0]
	try := func(flag string, now, vgpus int64, set func(s *share.Share, v int64)) {
		most := sort.Search(int(now), func(i int) bool { // what fits also fits if it is smaller
			smaller := c
			set(&smaller.Share, int64(i)+1)
			return !n.admits(node, pod, smaller)
		})
		if most > 0 {
			list = append(list, fmt.Sprintf(flag, int64(most)*vgpus))
		}
	}
	all := int64(c.VGPUs)
	try("--sm %d", int64(c.Share.SMRequest/10), all, func(s *share.Share, v int64) {
		s.SMRequest, s.SMLimit = share.PerMille(v*10), share.PerMille(v*10)
	})
	try("--quota %d", int64(c.Share.QuotaRequest/10), 1, func(s *share.Share, v int64) {
		s.QuotaRequest, s.QuotaLimit = share.PerMille(v*10), share.PerMille(v*10)
	})
	try("--mem %dMi", int64(c.Share.Memory/share.MiB), all, func(s *share.Share, v int64) {
		s.Memory = share.Bytes(v) * share.MiB
	})
	return list
}

// admits reports whether the pod would fit with another container in place of its own.
func (n *Node) admits(node *packing.Node, pod *packing.Pod, c share.Container) bool {
	try := *pod
	try.Request.Containers = []share.Container{c}
	if try.Request.Validate() != nil || try.Request.Attachable() != nil {
		return false
	}
	_, _, refusal := n.packer.Place(node, &try)
	return refusal == packing.Admitted
}
