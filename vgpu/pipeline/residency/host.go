package residency

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// host is the memory of the node that holds evicted data, with a limit of its own (U12). Data are in it or on a slice,
// never in both, so that each byte is accounted once.
type host struct {
	limit, used share.Bytes
	held        []*function // in no order
}

func (h *host) has(f *function) bool { return slices.Contains(h.held, f) }

// put takes in data. Others go, the least recently used first, until they fit; data larger than the limit are not kept.
func (h *host) put(f *function) {
	if f.Memory > h.limit || h.has(f) {
		return
	}
	for h.used+f.Memory > h.limit {
		h.take(slices.MinFunc(h.held, byUse))
	}
	h.held, h.used = append(h.held, f), h.used+f.Memory
}

// take gives up the data of a function, if they are here.
func (h *host) take(f *function) {
	if at := slices.Index(h.held, f); at >= 0 {
		h.held, h.used = slices.Delete(h.held, at, at+1), h.used-f.Memory
	}
}
