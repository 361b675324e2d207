package profile

import (
	"cmp"
	"fmt"
	"math"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// timeSliced returns the latency of a kernel sequence that takes the time exclusive alone, under time slicing: it runs for own, then
// waits for others, in turn. In the worst case it arrives just as its time slice has ended (PAMBA, eq. 4.4):
//
//	ceil(exclusive / own) * others + exclusive
//
// The mean is inversely proportional to the sequence's fraction of the time, and the p99 is a line over the worst case. Without
// others, both are exclusive.
func timeSliced(exclusive, own, others Seconds, p99 Linear) Latency {
	if others == 0 {
		return Latency{exclusive, exclusive}
	}
	worst := Seconds(math.Ceil(float64(exclusive/own)))*others + exclusive
	return newLatency(exclusive*(own+others)/own, Seconds(p99.At(float64(worst)))) // P8
}

// GPU is the latency model of a whole model in one function that buys some GB of a card's memory and the same fraction of the card's
// time.
type GPU struct {
	Exclusive  Linear  `json:"exclusive"` // seconds over the batch, alone on the card (PAMBA, eq. 4.3)
	Tail       Linear  `json:"tail"`      // p99 over the worst case of time slicing, if the card is shared (PAMBA, eq. 4.5)
	CardGB     int     `json:"cardGB"`    // memory of the card, in the unit in which it is sold (P8)
	TimeSlice  Seconds `json:"timeSlice"` // length of the turn that each GB buys
	Memory     Linear  `json:"memoryMiB"` // of the card, over the batch
	HostMemory Linear  `json:"hostMemoryMiB"`
	MaxBatch   int     `json:"maxBatch"`
}

// Latency returns the latency of a batch on gb of the card's memory, from 1 to CardGB.
func (m *GPU) Latency(batch, gb int) Latency {
	own, others := Seconds(gb)*m.TimeSlice, Seconds(m.CardGB-gb)*m.TimeSlice
	return timeSliced(m.Exclusive.Seconds(batch), own, others, m.Tail)
}

// Sizes returns the number of combinations of batch size and memory size; 0 if m is nil.
func (m *GPU) Sizes() int {
	if m == nil {
		return 0
	}
	return m.MaxBatch * m.CardGB
}

const maxCardGB = 512

// Validate returns a *share.FieldError that names the first invalid field, or nil.
func (m *GPU) Validate() error {
	switch {
	case m.CardGB < 1 || m.CardGB > maxCardGB:
		return share.Invalid("cardGB", "%d is outside 1 to %d", m.CardGB, maxCardGB)
	case !inBounds(float64(m.TimeSlice), 1e-9):
		return share.Invalid("timeSlice", "%v is no positive time in seconds", m.TimeSlice)
	}
	return cmp.Or(validBatch(m.MaxBatch), WithinField("exclusive", m.Exclusive.validatePositive()), WithinField("tail", m.Tail.Validate()),
		WithinField("memoryMiB", m.Memory.Validate()), WithinField("hostMemoryMiB", m.HostMemory.Validate()))
}

func validBatch(batch int) error {
	if batch < 1 || batch > maxModelBatch {
		return share.Invalid("maxBatch", "%d is outside 1 to %d", batch, maxModelBatch)
	}
	return nil
}

// maxModelBatch is the largest supported batch size. It bounds the time of the planners, which search all sizes.
const maxModelBatch = 1024

// Share is the latency model of a whole model on a gshare share: some of a slice's SMs for a fraction of every time window.
type Share struct {
	Curves []ShareCurve `json:"curves"` // by SMs; plans use only these measured numbers of SMs
	Tail   Linear       `json:"tail"`   // p99 over the worst case of time slicing, if the quota is below the whole
	Window Seconds      `json:"window"` // period of the slot table
	Memory Linear       `json:"memoryMiB"`

	MaxBatch int `json:"maxBatch"`
}

// ShareCurve is the latency over the batch size on a number of SMs that are available all the time.
type ShareCurve struct {
	SM        share.PerMille `json:"sm"`
	Exclusive Linear         `json:"exclusive"`
}

// Latency returns the latency of a batch on a share with the given quota of every window, on the SMs of the i-th curve.
func (m *Share) Latency(batch, i int, quota share.PerMille) Latency {
	own := m.Window * Seconds(quota) / Seconds(share.Whole)
	others := m.Window * Seconds(share.Whole-quota) / Seconds(share.Whole)
	return timeSliced(m.Curves[i].Exclusive.Seconds(batch), own, others, m.Tail)
}

// Sizes returns the number of combinations of SMs and batch size; 0 if m is nil.
func (m *Share) Sizes() int {
	if m == nil {
		return 0
	}
	return len(m.Curves) * m.MaxBatch
}

const maxCurves = 100

// Validate returns a *share.FieldError that names the first invalid field, or nil.
func (m *Share) Validate() error {
	switch {
	case len(m.Curves) == 0 || len(m.Curves) > maxCurves:
		return share.Invalid("curves", "%d of them; want 1 to %d", len(m.Curves), maxCurves)
	case !inBounds(float64(m.Window), 1e-9):
		return share.Invalid("window", "%v is no positive time in seconds", m.Window)
	}
	for i, c := range m.Curves {
		if c.SM < 1 || c.SM > share.Whole {
			return share.Invalid(fmt.Sprintf("curves[%d].sm", i), "%d per mille is outside 1 to %d", c.SM, share.Whole)
		}
		if err := c.Exclusive.validatePositive(); err != nil {
			return WithinField(fmt.Sprintf("curves[%d].exclusive", i), err)
		}
	}
	return cmp.Or(validBatch(m.MaxBatch), WithinField("tail", m.Tail.Validate()), WithinField("memoryMiB", m.Memory.Validate()))
}
