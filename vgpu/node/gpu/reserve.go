package gpu

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// MemoryForShares returns how much of the memory of a GPU or MIG instance is promised to shares, if it offers these isolation classes. Shares
// do not include what the CUDA contexts of their programs take, nor what the MPS server does: reserve is kept for them, but at most an eighth
// of the memory. Nothing is kept where nobody shares.
func MemoryForShares(memory, reserve share.Bytes, classes []share.Isolation) share.Bytes {
	if !slices.ContainsFunc(classes, func(c share.Isolation) bool { return c != share.Exclusive }) {
		return memory
	}
	return memory - min(reserve, memory/8)
}
