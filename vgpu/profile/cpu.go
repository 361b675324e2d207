package profile

import (
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// CPU is the latency model of a whole model in one function on vCPUs. It has one latency curve per batch size, starting at 1; a batch
// size without a curve was not measured.
type CPU struct {
	Mean   []Exponential `json:"mean"`
	P99    []Exponential `json:"p99"`
	Memory Linear        `json:"memoryMiB"` // over the batch
}

// Latency returns the latency of a batch of the given size, from 1 to len(Mean), on c vCPUs.
func (m *CPU) Latency(batch int, c MilliCPU) Latency {
	return newLatency(m.Mean[batch-1].At(c), m.P99[batch-1].At(c))
}

// Validate returns a *share.FieldError that names the first invalid curve, or nil.
func (m *CPU) Validate() error {
	if len(m.Mean) == 0 || len(m.Mean) != len(m.P99) {
		return share.Invalid("mean, p99", "%d and %d batch sizes: want as many of both, and at least one", len(m.Mean), len(m.P99))
	}
	for i := range m.Mean {
		if err := WithinField(fmt.Sprintf("mean[%d]", i), m.Mean[i].Validate()); err != nil {
			return err
		}
		if err := WithinField(fmt.Sprintf("p99[%d]", i), m.P99[i].Validate()); err != nil {
			return err
		}
	}
	return WithinField("memoryMiB", m.Memory.Validate())
}
