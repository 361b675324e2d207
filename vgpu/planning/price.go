package planning

import (
	"math"
	"time"

	"github.com/gshare-dev/gshare/vgpu/profile"
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
	PerGPUGBSecond int64 // of a card's memory, with the part of the card's time that comes with it
	PerSliceSecond int64 // of a whole slice's SMs for the whole time; a share pays for its area
	PerCall        int64 // of a function
)

func (p PerVCPUSecond) rate(c profile.MilliCPU) Cost { return Cost(p) * Cost(c) / 1000 }
func (p PerGBSecond) rate(m share.Bytes) Cost        { return Cost(p) * Cost(m) / gb }
func (p PerGPUGBSecond) rate(gb int) Cost            { return Cost(p) * Cost(gb) }
func (p PerSliceSecond) rate(sm, q share.PerMille) Cost {
	return Cost(p) * Cost(sm) * Cost(q) / Cost(share.WholeArea)
}

const gb = 1 << 30

// Book is a provider's price list. It includes the billing units, because providers change them.
type Book struct {
	Currency string `json:"currency"`

	VCPU      PerVCPUSecond  `json:"nanoPerVCPUSecond"`
	Memory    PerGBSecond    `json:"nanoPerGBSecond"`
	GPUMemory PerGPUGBSecond `json:"nanoPerGPUGBSecond"`
	Call      PerCall        `json:"nanoPerCall"`
	// A gshare share is held, busy or not, and pays for the area of its SMs and quota and for its memory.
	Slice       PerSliceSecond `json:"nanoPerSliceSecond"`
	SliceMemory PerGBSecond    `json:"nanoPerSliceGBSecond"`

	Quantum Quanta `json:"quantumMs"`
}

// Quanta are the units, in milliseconds, to which billed time is rounded up in each mode. Zero means no rounding.
type Quanta struct {
	CPU         Milliseconds `json:"cpu"`
	GPU         Milliseconds `json:"gpu"`
	Partitioned Milliseconds `json:"partitioned"`
}

// Milliseconds is a unit to which billed time is rounded up.
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

// meanRoundedUp returns the mean billed time if each execution is rounded up separately: the units of the constant part of the execution
// time, plus the geometric series of the probabilities that each further unit is begun.
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
func (b *Book) Validate(modes []Mode) error {
	for _, p := range []struct {
		field string
		value int64
		mode  Mode // for which it must be positive
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

func (q Quanta) validate() error {
	for _, unit := range []Milliseconds{q.CPU, q.GPU, q.Partitioned} {
		if unit < 0 || unit > 3_600_000 {
			return share.Invalid("quantumMs", "%d is outside 0 to 3600000", unit)
		}
	}
	return nil
}
