package mps

import "github.com/gshare-dev/gshare/vgpu/share"

// GoesBehind says who goes behind others: best effort on an elastic slice.
func GoesBehind(class share.Isolation, p share.Priority) bool {
	return class == share.Elastic && p != share.SLO
}

// Behind is the environment of best effort on an elastic slice. Blocks of its kernels that wait go behind those of clients without it
// (below normal is 1), so a long kernel of a training gives way at its next wave; block tokens cannot stop a kernel
// that was launched. MPS takes it as a hint.
const Behind = "CUDA_MPS_CLIENT_PRIORITY=1"
