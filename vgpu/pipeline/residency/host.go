package residency

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// host is the host memory that holds evicted data, up to a limit (U12). A function's data is in it or on a slice, never in both,
// so that each byte is counted once.
type hostCache struct {
	limit, used share.Bytes
	held        []*function // whose data is here, in no order
}

// has reports whether the data of a function is in host memory.
func (h *hostCache) has(f *function) bool { return slices.Contains(h.held, f) }

// put adds the data of a function and removes others, the least recently used first, until it fits. Data larger than the limit
// is not kept.
func (h *hostCache) add(f *function) {
	if f.Memory > h.limit || h.has(f) {
		return
	}
	for h.used+f.Memory > h.limit {
		h.remove(slices.MinFunc(h.held, compareLastUse))
	}
	h.held, h.used = append(h.held, f), h.used+f.Memory
}

// take removes the data of a function, if it is here.
func (h *hostCache) remove(f *function) {
	if at := slices.Index(h.held, f); at >= 0 {
		h.held, h.used = slices.Delete(h.held, at, at+1), h.used-f.Memory
	}
}
