package explain

import (
	"slices"
	"strconv"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// moreGPUs returns the changes by which a container whose memory no GPU has gets the fewest whole GPUs that have it together. The scheduler cannot
// make them by itself: how many GPUs a container has is in the pod, and its program has to divide the model between them.
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

// isTooLarge reports whether container c asks for whole GPUs or parts of them with more memory than any has.
func (q *Search) isTooLarge(c int) bool {
	if q.Pod.Request.TermsOf(c).Slice != share.WholeGPU {
		return false
	}
	memory := q.Pod.Request.Containers[c].Share.Memory + share.MemoryOf(q.Pod.Request.Weights)
	return !slices.ContainsFunc(q.Nodes, func(n *packing.Node) bool {
		return slices.ContainsFunc(n.Slices, func(s packing.Slice) bool { return s.Profile == "" && s.Memory >= memory })
	})
}

// mostDevices returns the number of GPUs of the node with most, at most those that a pod may have.
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

// onWholeGPUs returns the request with container c on n whole GPUs, each with an equal part of its memory in whole MiB.
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
	if l := before.Share.SMLimit; l > before.Share.SMRequest && l < share.Whole { // annotations of the pod
		s.edits = append(s.edits, Edit{Field: share.FieldSMLimit, From: strconv.Itoa(int(l / percent))})
	}
	if l := before.Share.QuotaLimit; l > before.Share.QuotaRequest && l < share.Whole {
		s.edits = append(s.edits, Edit{Field: share.FieldQuotaLimit, From: strconv.Itoa(int(l / percent))})
	}
	return s
}
