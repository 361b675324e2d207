package profile

import (
	"cmp"
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Partitioned is the latency model of a model that is split into consecutive stages, each on one or more parallel CPU functions. A master
// function calls them and joins their results after each stage.
type Partitioned struct {
	Stages   []Stage `json:"stages"`
	Transfer Linear  `json:"transfer"` // seconds between two stages, over the batch: theta0 + theta1*b
	Master   Master  `json:"master"`
}

// Stage is one stage of a partitioned model, with its parallel workers (functions on vCPUs).
type Stage struct {
	Workers []CPU `json:"workers"`
}

// Master is the size of the master function, which calls the workers of a partitioned model: the smallest size on which it works.
type Master struct {
	CPU       MilliCPU `json:"milliCPU"`
	MemoryMiB int      `json:"memoryMiB"`
}

// Latency returns the latency of a stage on the vCPUs of its workers, which is that of the slowest worker (PAMBA, eqs. 4.8, 4.9).
func (s *Stage) Latency(batch int, c []MilliCPU) Latency {
	var l Latency
	for w := range s.Workers {
		worker := s.Workers[w].Latency(batch, c[w])
		l = Latency{max(l.Mean, worker.Mean), max(l.P99, worker.P99)}
	}
	return l
}

// Latency returns the end-to-end latency on the given vCPUs of each stage's workers (PAMBA, eqs. 4.10, 4.11). The p99 is the sum of the
// stages' p99s, an upper bound.
func (m *Partitioned) Latency(batch int, c [][]MilliCPU) Latency {
	transfers := m.Transfers(batch)
	l := Latency{transfers, transfers}
	for s := range m.Stages {
		stage := m.Stages[s].Latency(batch, c[s])
		l.Mean += stage.Mean
		l.P99 += stage.P99 // P11
	}
	return l
}

// Transfers returns the total transfer time between the stages.
func (m *Partitioned) Transfers(batch int) Seconds {
	return Seconds(len(m.Stages)-1) * m.Transfer.Seconds(batch)
}

// Batches returns the largest batch size for which all workers have latency curves.
func (m *Partitioned) Batches() int {
	least := maxModelBatch
	for _, s := range m.Stages {
		for _, w := range s.Workers {
			least = min(least, len(w.Mean))
		}
	}
	return least
}

// Sizes returns the number of workers, each counted once per batch size; 0 if m is nil. It measures how long planning with the model takes.
func (m *Partitioned) Sizes() (n int) {
	if m == nil {
		return 0
	}
	for _, s := range m.Stages {
		n += len(s.Workers)
	}
	return n * m.Batches()
}

// Limits of a partitioned model; larger values are errors of input.
const (
	maxStages  = 16
	maxWorkers = 16
)

// Validate returns a *share.FieldError that names the first invalid field, or nil.
func (m *Partitioned) Validate() error {
	if len(m.Stages) == 0 || len(m.Stages) > maxStages {
		return share.Invalid("stages", "%d of them; want 1 to %d", len(m.Stages), maxStages)
	}
	for i, s := range m.Stages {
		if err := s.validate(); err != nil {
			return WithinField(fmt.Sprintf("stages[%d]", i), err)
		}
	}
	return cmp.Or(WithinField("transfer", m.Transfer.Validate()), WithinField("master", m.Master.validate()))
}

func (s *Stage) validate() error {
	if len(s.Workers) == 0 || len(s.Workers) > maxWorkers {
		return share.Invalid("workers", "%d of them; want 1 to %d", len(s.Workers), maxWorkers)
	}
	for i := range s.Workers {
		if err := s.Workers[i].Validate(); err != nil {
			return WithinField(fmt.Sprintf("workers[%d]", i), err)
		}
	}
	return nil
}

func (m Master) validate() error {
	switch {
	case m.CPU < 1 || m.CPU > 1e6:
		return share.Invalid("milliCPU", "%d is outside 1 to 1000000", m.CPU)
	case m.MemoryMiB < 1 || m.MemoryMiB > 1<<20:
		return share.Invalid("memoryMiB", "%d is outside 1 to %d", m.MemoryMiB, 1<<20)
	}
	return nil
}

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

// Batches returns the largest batch size; 0 if m is nil.
func (m *CPU) Batches() int {
	if m == nil {
		return 0
	}
	return len(m.Mean)
}

// Validate returns a *share.FieldError that names the first invalid curve, or nil.
func (m *CPU) Validate() error {
	if len(m.Mean) == 0 || len(m.Mean) != len(m.P99) || len(m.Mean) > maxModelBatch {
		return share.Invalid("mean, p99", "%d and %d batch sizes: want as many of both, 1 to %d", len(m.Mean), len(m.P99), maxModelBatch)
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
