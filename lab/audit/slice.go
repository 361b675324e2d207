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
	memory    share.Bytes
	cached    *fitCache // about one more share on just this load
}

// heldShare is one share on a slice and the vGPU that it belongs to.
type heldShare struct {
	pod       string
	tenant    string
	container string
	vgpu      int
	packing   kube.FitModel
	class     share.Isolation
	share     share.Share // as it counts: without SM-time if its pod is Shared
}

// requestsSMTime reports whether a share has to be in the slot table or the packing of its slice.
func requestsSMTime(s share.Share) bool { return s.RequestArea() > 0 }

func (l *load) add(h heldShare) {
	l.held = append(l.held[:len(l.held):len(l.held)], h) // copies that were made before keep their list
	if requestsSMTime(h.share) {
		l.items = append(l.items[:len(l.items):len(l.items)], itemOf(h.share))
	}
	l.requested += h.share.RequestArea()
	l.limits += h.share.LimitArea()
	l.memory += h.share.Memory
	l.cached = nil
}

func (s *slice) capacity() share.Bytes { return share.Bytes(s.MemoryMiB) * share.MiB }

// shares returns the shares on the slice that request SM-time, followed by the given ones.
func (l *load) shares(more ...share.Share) []share.Share {
	out := make([]share.Share, 0, len(l.held)+len(more))
	for i := range l.held {
		if requestsSMTime(l.held[i].share) {
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
