package planning

import (
	"math"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Cost is a predicted amount of money in nano-units (1e-9) of the currency of the price list; costs of groups are per second. Prices are
// integers, but predictions may be fractions.
type Cost float64

// Prices in nano-units. Each unit has its own type (P9), so that the price of a whole GPU cannot be mistaken for that of
// one GB of it.
type (
	PerVCPUSecond  int64 // of a function
	PerGBSecond    int64 // of a function's memory
	PerGPUGBSecond int64 // of a GPU's memory, with the fraction of the GPU's time that is sold with it
	PerSliceSecond int64 // of all SMs of a slice all the time; a share pays the fraction SMs x quota of it
	PerCall        int64 // of a function
)

func (p PerVCPUSecond) rate(c profile.MilliCPU) Cost { return Cost(p) * Cost(c) / 1000 }
func (p PerGBSecond) rate(m share.Bytes) Cost        { return Cost(p) * Cost(m) / gb }
func (p PerGPUGBSecond) rate(gb int) Cost            { return Cost(p) * Cost(gb) }
func (p PerSliceSecond) rate(sm, q share.PerMille) Cost {
	return Cost(p) * Cost(sm) * Cost(q) / Cost(share.WholeArea)
}

const gb = 1 << 30

// PriceList holds a provider's prices and billing units. It is part of the input, because providers change both.
type PriceList struct {
	Currency string `json:"currency"`

	VCPU      PerVCPUSecond  `json:"nanoPerVCPUSecond"`
	Memory    PerGBSecond    `json:"nanoPerGBSecond"`
	GPUMemory PerGPUGBSecond `json:"nanoPerGPUGBSecond"`
	Call      PerCall        `json:"nanoPerCall"`
	// Slice and SliceMemory are the prices of a gshare share. It is reserved: busy or not, it pays for its SMs x quota and its memory.
	Slice       PerSliceSecond `json:"nanoPerSliceSecond"`
	SliceMemory PerGBSecond    `json:"nanoPerSliceGBSecond"`

	Quantum BillingUnits `json:"quantumMs"`
}

// OfShare returns the cost per second of a share that is reserved.
func (b *PriceList) OfShare(s share.Share) Cost {
	return b.ofShare(s.SMRequest, s.QuotaRequest, s.Memory)
}

func (b *PriceList) ofShare(sm, quota share.PerMille, memory share.Bytes) Cost {
	return b.Slice.rate(sm, quota) + b.SliceMemory.rate(memory)
}

// BillingUnits are the units, in milliseconds, to which billed time is rounded up in each execution mode. Zero means no rounding.
type BillingUnits struct {
	CPU         Milliseconds `json:"cpu"`
	GPU         Milliseconds `json:"gpu"`
	Partitioned Milliseconds `json:"partitioned"`
}

// Milliseconds is a unit of time to which billed time is rounded up.
type Milliseconds int64

// roundUp returns t rounded up to a multiple of q. It first rounds t to nanoseconds, so that 0.3 s is three units of 0.1 s despite
// floating-point errors.
func (q Milliseconds) roundUp(t profile.Seconds) profile.Seconds {
	if q == 0 {
		return t
	}
	unit := float64(q) * float64(time.Millisecond)
	return profile.Seconds(math.Ceil(math.Round(float64(t)*1e9)/unit) * unit / 1e9)
}

// meanRoundedUp returns the mean billed time if each execution is rounded up separately: the units that the constant part of the
// execution time fills, plus the sum of the probabilities that each further unit is begun (a geometric series).
func (q Milliseconds) meanRoundedUp(l profile.Latency) profile.Seconds {
	unit, spread := float64(q)/1000, float64(l.Spread())
	if q == 0 || spread < 1e-9 {
		return q.roundUp(l.Mean)
	}
	fixed := float64(l.Mean) - spread
	n := math.Ceil(fixed / unit)
	return profile.Seconds(unit * (n + math.Exp((fixed-n*unit)/spread)/-math.Expm1(-unit/spread)))
}

// maxPrice is the highest valid price in nano-units: a million units of currency a second.
const maxPrice = 1e15

// Validate returns a *share.FieldError for a price that makes one of the given modes free or its cost overflow, or nil.
func (b *PriceList) Validate(modes []Mode) error {
	for _, p := range []struct {
		field string
		value int64
		mode  Mode // for which the price must be positive
	}{
		{"nanoPerVCPUSecond", int64(b.VCPU), CPU}, {"nanoPerVCPUSecond", int64(b.VCPU), Partitioned},
		{"nanoPerGBSecond", int64(b.Memory), CPU}, {"nanoPerGBSecond", int64(b.Memory), Partitioned},
		{"nanoPerGPUGBSecond", int64(b.GPUMemory), GPU}, {"nanoPerSliceSecond", int64(b.Slice), Share},
		{"nanoPerCall", int64(b.Call), ""}, {"nanoPerSliceGBSecond", int64(b.SliceMemory), ""},
	} {
		if p.value < 0 || p.value > maxPrice {
			return share.Invalid(p.field, "%d is outside 0 to %d", p.value, int64(maxPrice))
		}
		if p.value == 0 && contains(modes, p.mode) {
			return share.Invalid(p.field, "is zero: mode %s would be free", p.mode)
		}
	}
	return b.Quantum.validate()
}

func (q BillingUnits) validate() error {
	for _, unit := range []Milliseconds{q.CPU, q.GPU, q.Partitioned} {
		if unit < 0 || unit > 3_600_000 {
			return share.Invalid("quantumMs", "%d is outside 0 to 3600000", unit)
		}
	}
	return nil
}

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
	MaxBusy        share.PerMille   `json:"maxBusy"`        // fraction of the time that a reserved share may be busy
	SliceMemoryMiB int64            `json:"sliceMemoryMiB"` // of a slice on which shares are placed
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

// maxSizes is the greatest number of sizes of functions; more would take longer than they could save.
const maxSizes = 1024

// Validate returns a *share.FieldError if a size is out of bounds or there are too many sizes to enumerate, or nil.
func (p *Platform) Validate() error {
	switch {
	case p.MinCPU < 1 || p.MaxCPU < p.MinCPU || p.MaxCPU > 1e6:
		return share.Invalid("minMilliCPU, maxMilliCPU", "%d to %d is no range within 1 to 1000000", p.MinCPU, p.MaxCPU)
	case p.CPUStep < 1 || (p.MaxCPU-p.MinCPU)/p.CPUStep >= maxSizes:
		return share.Invalid("cpuStepMilli", "%d gives no sizes, or more than %d", p.CPUStep, maxSizes)
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

// sizes returns the number of function sizes and of share quotas; both are 0 if the platform is not valid.
func (p *Platform) sizes() (cpus, quotas int) {
	if p.CPUStep > 0 && p.MaxCPU >= p.MinCPU {
		cpus = int(min((p.MaxCPU-p.MinCPU)/p.CPUStep, maxSizes)) + 1
	}
	if p.QuotaStep > 0 {
		quotas = int(share.Whole / p.QuotaStep)
	}
	return cpus, quotas
}

// functionMemory returns the memory of the smallest function with c vCPUs and at least the needed memory, and false if there is none.
func (p *Platform) functionMemory(c profile.MilliCPU, need share.Bytes) (share.Bytes, bool) {
	step := share.Bytes(p.MemoryStepMiB) * share.MiB
	least := share.Bytes(c) * share.Bytes(p.MinMiBPerCPU) * share.MiB / 1000
	memory := (max(need, least, 1) + step - 1) / step * step
	most := min(share.Bytes(c)*share.Bytes(p.MaxMiBPerCPU)*share.MiB/1000, share.Bytes(p.MaxMemoryMiB)*share.MiB)
	return memory, memory <= most
}
