package profile

import (
	"cmp"
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Partitioned is a model cut into stages that run one after another, each on one or more CPU functions at once; a master
// function calls them and puts their results together after each stage (PA-06).
type Partitioned struct {
	Stages   []Stage `json:"stages"`
	Transfer Linear  `json:"transfer"` // seconds between two stages, over the batch: theta0 + theta1*b (PA-17)
	Master   Master  `json:"master"`
}

// Stage is what runs at once.
type Stage struct {
	Workers []CPU `json:"workers"`
}

// Master has a fixed size: the least that works (PA-66).
type Master struct {
	CPU       MilliCPU `json:"milliCPU"`
	MemoryMiB int      `json:"memoryMiB"`
}

// Latency returns the latency of a stage on the vCPUs of its workers: the slowest decides (PA-16, eqs. 4.8, 4.9).
func (s *Stage) Latency(batch int, c []MilliCPU) Latency {
	var l Latency
	for w := range s.Workers {
		worker := s.Workers[w].Latency(batch, c[w])
		l = Latency{max(l.Mean, worker.Mean), max(l.P99, worker.P99)}
	}
	return l
}

// Latency returns the latency of the whole on the vCPUs of each stage's workers (PA-17, eqs. 4.10, 4.11). The sum of the stages' p99 is a
// safe bound of the p99 of the sum, not its value (P11).
func (m *Partitioned) Latency(batch int, c [][]MilliCPU) Latency {
	transfers := m.Transfers(batch)
	l := Latency{transfers, transfers}
	for s := range m.Stages {
		stage := m.Stages[s].Latency(batch, c[s])
		l.Mean += stage.Mean
		l.P99 += stage.P99
	}
	return l
}

// Transfers returns the time between the stages, all together.
func (m *Partitioned) Transfers(batch int) Seconds {
	return Seconds(len(m.Stages)-1) * m.Transfer.Seconds(batch)
}

// Batches returns the largest batch that all workers have curves for.
func (m *Partitioned) Batches() int {
	least := maxModelBatch
	for _, s := range m.Stages {
		for _, w := range s.Workers {
			least = min(least, len(w.Mean))
		}
	}
	return least
}

// Bounds of a cut model: beyond them somebody has mistyped.
const (
	maxStages  = 16
	maxWorkers = 16
)

// Validate returns an error for a model that cannot be used. Errors are *share.FieldError.
func (m *Partitioned) Validate() error {
	if len(m.Stages) == 0 || len(m.Stages) > maxStages {
		return share.Invalid("stages", "%d of them; want 1 to %d", len(m.Stages), maxStages)
	}
	for i, s := range m.Stages {
		if err := s.validate(); err != nil {
			return within(fmt.Sprintf("stages[%d]", i), err)
		}
	}
	return cmp.Or(within("transfer", m.Transfer.Validate()), within("master", m.Master.validate()))
}

func (s *Stage) validate() error {
	if len(s.Workers) == 0 || len(s.Workers) > maxWorkers {
		return share.Invalid("workers", "%d of them; want 1 to %d", len(s.Workers), maxWorkers)
	}
	for i := range s.Workers {
		if err := s.Workers[i].Validate(); err != nil {
			return within(fmt.Sprintf("workers[%d]", i), err)
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
