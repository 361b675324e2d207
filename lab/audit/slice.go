package audit

import (
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// slice is one slice of a node's inventory with the shares on it.
type slice struct {
	kube.Slice
	load
}

// load is the list of shares on a slice, with their sums.
type load struct {
	held      []heldShare
	items     []slot.Item // of the shares
	requested share.Area
	limits    share.Area
	memory    share.Bytes // of the shares, without weights
	weighted  bool        // whether a share declares weights
	cached    *fitCache   // whether one more share fits beside exactly this load
}

// heldShare is one share on a slice and the vGPU that it belongs to.
type heldShare struct {
	pod       string
	tenant    string
	container string
	vgpu      int
	packing   kube.FitModel
	class     share.Isolation
	share     share.Share // as it counts: without SM-time if the pod is Shared
	weights   []share.Weights

	antiAffinity string // with which the pod was placed
}

// requestsSMTime reports whether a share must be in the slot table or the packing of its slice.
func requestsSMTime(s share.Share) bool { return s.RequestArea() > 0 }

func (l *load) add(h heldShare) {
	l.held = append(l.held[:len(l.held):len(l.held)], h) // earlier copies keep their list
	l.memory += h.share.Memory
	l.weighted = l.weighted || len(h.weights) > 0
	l.cached = nil
	if h.class == share.Swap { // uses the SM-time of the slice in turn with others
		return
	}
	if requestsSMTime(h.share) {
		l.items = append(l.items[:len(l.items):len(l.items)], itemOf(h.share))
	}
	l.requested += h.share.RequestArea()
	l.limits += h.share.LimitArea()
}

// memoryWith returns the memory that the shares on the slice and one more share take together. Shared weights count once per namespace, with
// the largest size that a share declares for them.
func (l *load) memoryWith(more heldShare) share.Bytes {
	sum := l.memory + more.share.Memory
	if !l.weighted && len(more.weights) == 0 {
		return sum
	}
	type key struct {
		tenant string
		digest share.Digest
	}
	weights := map[key]share.Bytes{}
	for i := range len(l.held) + 1 {
		h := &more
		if i < len(l.held) {
			h = &l.held[i]
		}
		for _, w := range h.weights {
			k := key{h.tenant, w.Digest}
			weights[k] = max(weights[k], w.Memory)
		}
	}
	for _, memory := range weights {
		sum += memory
	}
	return sum
}

func (s *slice) capacity() share.Bytes { return share.Bytes(s.MemoryMiB) * share.MiB }

// shares returns the shares on the slice that request SM-time, followed by those of more.
func (l *load) shares(more ...share.Share) []share.Share {
	out := make([]share.Share, 0, len(l.held)+len(more))
	for i := range l.held {
		if requestsSMTime(l.held[i].share) && l.held[i].class != share.Swap {
			out = append(out, l.held[i].share)
		}
	}
	return append(out, more...)
}

// countDistinct returns the number of distinct values of a property over the shares.
func countDistinct[T comparable](l *load, answer func(heldShare) T) int {
	seen := map[T]bool{}
	for _, h := range l.held {
		seen[answer(h)] = true
	}
	return len(seen)
}
