package planning

import (
	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Platform describes the function sizes that a serverless provider offers. All fields are required.
type Platform struct {
	CPUStep        profile.MilliCPU `json:"cpuStepMilli"`
	MinCPU         profile.MilliCPU `json:"minMilliCPU"`
	MaxCPU         profile.MilliCPU `json:"maxMilliCPU"`
	MemoryStepMiB  int64            `json:"memoryStepMiB"`
	MinMiBPerCPU   int64            `json:"minMiBPerCPU"` // a function with c vCPUs has at least c times this
	MaxMiBPerCPU   int64            `json:"maxMiBPerCPU"` // and at most c times this
	MaxMemoryMiB   int64            `json:"maxMemoryMiB"` // of one function
	MilliCPUPerGB  profile.MilliCPU `json:"milliCPUPerGPUGB"`
	QuotaStep      share.PerMille   `json:"quotaStep"`      // of shares
	MaxBusy        share.PerMille   `json:"maxBusy"`        // of the time that a held share may be busy
	SliceMemoryMiB int64            `json:"sliceMemoryMiB"` // of the slices that shares are parts of
}

// DefaultPlatform returns the function sizes of the provider on which HarmonyBatch and PAMBA were evaluated (0.05 to 16 vCPUs in steps of
// 0.05, one vCPU per 3 GB of GPU memory), and slices of 80 GiB.
func DefaultPlatform() Platform {
	return Platform{
		CPUStep: 50, MinCPU: 50, MaxCPU: 16000,
		MemoryStepMiB: 64, MinMiBPerCPU: 1024, MaxMiBPerCPU: 4096, MaxMemoryMiB: 32768,
		MilliCPUPerGB: 333, QuotaStep: 50, MaxBusy: 800, SliceMemoryMiB: 81920,
	}
}

// Validate returns a *share.FieldError if a size is out of bounds or there are too many sizes to enumerate, or nil.
func (p *Platform) Validate() error {
	const sizes = 1024 // of functions; more would take longer than they could save
	switch {
	case p.MinCPU < 1 || p.MaxCPU < p.MinCPU || p.MaxCPU > 1e6:
		return share.Invalid("minMilliCPU, maxMilliCPU", "%d to %d is no range within 1 to 1000000", p.MinCPU, p.MaxCPU)
	case p.CPUStep < 1 || (p.MaxCPU-p.MinCPU)/p.CPUStep >= sizes:
		return share.Invalid("cpuStepMilli", "%d gives no sizes, or more than %d", p.CPUStep, sizes)
	case p.MemoryStepMiB < 1 || p.MemoryStepMiB > 1<<20:
		return share.Invalid("memoryStepMiB", "%d is outside 1 to %d", p.MemoryStepMiB, 1<<20)
	case p.MinMiBPerCPU < 0 || p.MaxMiBPerCPU < max(p.MinMiBPerCPU, 1) || p.MaxMiBPerCPU > 1<<24:
		return share.Invalid("minMiBPerCPU, maxMiBPerCPU", "%d to %d is no range within 0 to %d", p.MinMiBPerCPU, p.MaxMiBPerCPU, 1<<24)
	case p.MaxMemoryMiB < 1 || p.MaxMemoryMiB > 1<<24:
		return share.Invalid("maxMemoryMiB", "%d is outside 1 to %d", p.MaxMemoryMiB, 1<<24)
	case p.MilliCPUPerGB < 0 || p.MilliCPUPerGB > 1e6:
		return share.Invalid("milliCPUPerGPUGB", "%d is outside 0 to 1000000", p.MilliCPUPerGB)
	case p.QuotaStep < 1 || share.Whole%p.QuotaStep != 0:
		return share.Invalid("quotaStep", "%d does not divide %d", p.QuotaStep, share.Whole)
	case p.MaxBusy < 1 || p.MaxBusy > share.Whole:
		return share.Invalid("maxBusy", "%d is outside 1 to %d", p.MaxBusy, share.Whole)
	case p.SliceMemoryMiB < 1 || p.SliceMemoryMiB > 1<<24:
		return share.Invalid("sliceMemoryMiB", "%d is outside 1 to %d", p.SliceMemoryMiB, 1<<24)
	}
	return nil
}

// functionMemory returns the memory of the smallest function with c vCPUs and at least the needed memory, and false if there is none.
func (p *Platform) functionMemory(c profile.MilliCPU, need share.Bytes) (share.Bytes, bool) {
	step := share.Bytes(p.MemoryStepMiB) * share.MiB
	least := share.Bytes(c) * share.Bytes(p.MinMiBPerCPU) * share.MiB / 1000
	memory := (max(need, least, 1) + step - 1) / step * step
	most := min(share.Bytes(c)*share.Bytes(p.MaxMiBPerCPU)*share.MiB/1000, share.Bytes(p.MaxMemoryMiB)*share.MiB)
	return memory, memory <= most
}
