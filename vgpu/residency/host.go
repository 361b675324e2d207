package residency

import "github.com/gshare-dev/gshare/vgpu/share"

// HostMemory is the memory of a host that parked instances hold, or are about to, by instance.
type HostMemory map[string]share.Bytes

// Sum returns what all of them hold.
func (h HostMemory) Sum() (sum share.Bytes) {
	for _, held := range h {
		sum += held
	}
	return sum
}

// Fits reports whether an instance may be parked that will hold so many bytes, instead of what it is counted with. A limit of 0 is none.
func (h HostMemory) Fits(id string, bytes, limit share.Bytes) bool {
	others := h.Sum() - h[id]
	return limit == 0 || bytes <= limit && others <= limit-bytes
}
