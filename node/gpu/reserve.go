package gpu

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// MemoryForShares returns how much of the memory of a GPU or MIG instance may be promised to shares, if it offers these isolation classes.
// Shares do not include the memory of their programs' CUDA contexts, nor that of the MPS server. The reserve is kept for these, but at most
// an eighth of the memory. Nothing is kept if the slice cannot be shared.
func MemoryForShares(memory, reserve share.Bytes, classes []share.Isolation) share.Bytes {
	if !slices.ContainsFunc(classes, func(c share.Isolation) bool { return c != share.Exclusive }) {
		return memory
	}
	return memory - min(reserve, memory/8)
}
