package residency

import "github.com/gshare-dev/gshare/vgpu/share"

// HostMemory is the memory of a host that parked instances occupy, or are about to, by instance.
type HostMemory map[string]share.Bytes

// Sum returns the memory that all of them occupy.
func (h HostMemory) Sum() (sum share.Bytes) {
	for _, held := range h {
		sum += held
	}
	return sum
}

// Fits reports whether an instance may be parked with the given number of bytes, which replaces what is counted for it now. A limit of 0
// means no limit.
func (h HostMemory) Fits(id string, bytes, limit share.Bytes) bool {
	others := h.Sum() - h[id]
	return limit == 0 || bytes <= limit && others <= limit-bytes
}
