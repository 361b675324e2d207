package mps

import "github.com/gshare-dev/gshare/vgpu/share"

// contextBase is the memory that ContextMemory returns for no SMs, and contextSMs is what all SMs add to it.
const (
	contextBase = 256 * share.MiB
	contextSMs  = 768 * share.MiB
)

// ContextMemory returns how much device memory a process may have beyond its share, for its CUDA context and the code that it loads. sms is
// the part of the SMs that MPS lets the process use, or share.Whole for a process that is not a client of MPS. The result is a whole number
// of MiB.
//
// The driver reserves memory in each context for every SM that the context can use. A PyTorch program that has not used cuBLAS yet has a
// context of 617 MiB with all SMs of an H100 (132 SMs, driver 580.159), of 329 MiB with 50 % of them and of 77 MiB with 10 %, which is 18
// MiB and 4.54 MiB for each SM. The allowance is 1024, 640 and 333 MiB: it has room for the code of libraries such as cuBLAS and cuDNN, and
// for devices with up to 160 SMs. On a MIG instance, which has fewer SMs, it has more room.
//
// The driver's limits include the context; a share's memory does not. MPS limits each process separately, so each limit includes one
// context. A cgroup (dmem) limits all processes of a container together, and also includes only one context, as the number of processes is
// unknown.
func ContextMemory(sms share.PerMille) share.Bytes {
	bytes := contextBase + contextSMs*share.Bytes(sms)/share.Bytes(share.Whole)
	return (bytes + share.MiB - 1) / share.MiB * share.MiB
}
