package audit

import (
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// slice is one slice of an inventory and its shares.
type slice struct {
	kube.Slice
	load
}

// load is a list of shares and their sums.
type load struct {
	held      []held
	items     []slot.Item // of the shares
	requested share.Area
	limits    share.Area
	memory    share.Bytes
	known     *verdicts // about one more share on just this load
}

// held is one share on a slice.
type held struct {
	pod       string
	tenant    string
	container string
	vgpu      int
	packing   kube.FitModel
	class     share.Isolation
	share     share.Share
}

func (l *load) add(h held) {
	l.held = append(l.held[:len(l.held):len(l.held)], h) // copies that were made before keep their list
	l.items = append(l.items[:len(l.items):len(l.items)], itemOf(h.share))
	l.requested += h.share.RequestArea()
	l.limits += h.share.LimitArea()
	l.memory += h.share.Memory
	l.known = nil
}

func (s *slice) capacity() share.Bytes { return share.Bytes(s.MemoryMiB) * share.MiB }

// shares returns what is held, and the shares that are to come on top.
func (l *load) shares(more ...share.Share) []share.Share {
	out := make([]share.Share, 0, len(l.held)+len(more))
	for i := range l.held {
		out = append(out, l.held[i].share)
	}
	return append(out, more...)
}

// several returns the number of distinct values over the shares.
func several[T comparable](l *load, answer func(held) T) int {
	seen := map[T]bool{}
	for _, h := range l.held {
		seen[answer(h)] = true
	}
	return len(seen)
}
