package explain

import (
	"slices"
	"strconv"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// moreGPUs returns, for each container that asks for more memory than any GPU has, the change to the fewest whole GPUs that have it
// together. The scheduler cannot make this change by itself: the pod says how many GPUs a container gets, and the container's program has
// to divide the model between them.
func (q *Search) moreGPUs() (found []Change) {
	for c := range q.Pod.Request.Containers {
		if !q.isTooLarge(c) {
			continue
		}
		for n := q.Pod.Request.Containers[c].VGPUs + 1; n <= q.mostDevices(); n++ {
			s := q.onWholeGPUs(c, n)
			if node := q.findNode(s.request); node != nowhere {
				found = append(found, Change{Edits: s.edits, Node: q.Nodes[node].Name})
				break
			}
		}
	}
	return found
}

// isTooLarge reports whether container c runs on GPUs that are not divided by MIG and asks for more memory per vGPU, weights included, than
// any of them has.
func (q *Search) isTooLarge(c int) bool {
	if q.Pod.Request.TermsOf(c).Slice != share.WholeGPU {
		return false
	}
	memory := q.Pod.Request.Containers[c].Share.Memory + share.MemoryOf(q.Pod.Request.Weights)
	return !slices.ContainsFunc(q.Nodes, func(n *packing.Node) bool {
		return slices.ContainsFunc(n.Slices, func(s packing.Slice) bool { return s.Profile == "" && s.Memory >= memory })
	})
}

// mostDevices returns the largest number of GPUs that a node has, but at most the number that a pod may have.
func (q *Search) mostDevices() (most int) {
	for _, n := range q.Nodes {
		seen := map[string]bool{}
		for i := range n.Slices {
			seen[n.Slices[i].Device] = true
		}
		most = max(most, len(seen))
	}
	return min(most, share.MaxVGPUs)
}

// onWholeGPUs returns the request with container c on n whole GPUs, each with an equal part of the container's memory, rounded up to whole
// MiB.
func (q *Search) onWholeGPUs(c, n int) variant {
	changed := cloneRequest(q.Pod.Request)
	container := &changed.Containers[c]
	before, mib := *container, func(x share.Container) int64 { return int64(x.Share.Memory/share.MiB) * int64(x.VGPUs) }
	container.VGPUs = n
	container.Share = share.Share{
		SMRequest: share.Whole, SMLimit: share.Whole, QuotaRequest: share.Whole, QuotaLimit: share.Whole,
		Memory: share.Bytes((mib(before)+int64(n)-1)/int64(n)) * share.MiB,
	}
	s := variant{request: changed}
	for _, e := range []struct {
		field    string
		from, to int64
	}{
		{share.FieldVGPU, int64(before.VGPUs), int64(n)},
		{share.FieldSM, int64(before.Share.SMRequest/percent) * int64(before.VGPUs), 100 * int64(n)},
		{share.FieldQuota, int64(before.Share.QuotaRequest / percent), 100},
		{share.FieldMemory, mib(before), mib(*container)},
	} {
		if e.from != e.to {
			s.edits = append(s.edits, newEdit(before.Name, e.field, e.from, e.to))
		}
	}
	if l := before.Share.SMLimit; l > before.Share.SMRequest && l < share.Whole { // limits are annotations of the pod; the edit removes them
		s.edits = append(s.edits, Edit{Field: share.FieldSMLimit, From: strconv.Itoa(int(l / percent))})
	}
	if l := before.Share.QuotaLimit; l > before.Share.QuotaRequest && l < share.Whole {
		s.edits = append(s.edits, Edit{Field: share.FieldQuotaLimit, From: strconv.Itoa(int(l / percent))})
	}
	return s
}
