package residency

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// hostCache holds the data of evicted functions in host memory, up to a limit. A function's data is in the cache or on a slice, never in
// both, so that each byte is counted once.
type hostCache struct {
	limit, used share.Bytes
	held        []*function // whose data is here, in no order
}

func (h *hostCache) has(f *function) bool { return slices.Contains(h.held, f) }

// add puts the data of a function into host memory, after removing that of others, the least recently used first, until it fits. Data
// larger than the limit is not kept.
func (h *hostCache) add(f *function) {
	if f.Memory > h.limit || h.has(f) {
		return
	}
	for h.used+f.Memory > h.limit {
		h.remove(slices.MinFunc(h.held, compareLastUse))
	}
	h.held, h.used = append(h.held, f), h.used+f.Memory
}

// remove deletes the data of a function from host memory, if it is there.
func (h *hostCache) remove(f *function) {
	if at := slices.Index(h.held, f); at >= 0 {
		h.held, h.used = slices.Delete(h.held, at, at+1), h.used-f.Memory
	}
}
