package pipeline

import (
	"fmt"
	"time"
)

// Assignment is a function's partition into pipeline stages together with the free slice on which each part of a stage runs. An instance
// of the function is started from it.
type Assignment struct {
	Partition  Partition
	Slices     [][]Slice     // by stage and part
	Latency    time.Duration // of a request that runs every node, with transfers, without waiting
	Bottleneck time.Duration // expected time of the slowest part; one request is completed in each
	CV         CV            // of the stage times on these slices
	Transfers  time.Duration // the part of Latency between stages
}

// Rate returns the throughput of the pipeline in requests per second, which its slowest stage limits.
func (a Assignment) Rate() float64 { return 1 / a.Bottleneck.Seconds() }

// Outstanding returns how many requests the instance may have at once so that the last one is expected to meet the SLO; 0 if even a
// single one may miss it. It is the capacity that package routing uses.
func (a Assignment) Outstanding(slo time.Duration) int {
	if a.Latency > slo {
		return 0
	}
	return int((slo-a.Latency)/max(a.Bottleneck, 1)) + 1
}

// Compute returns the number of MIG compute slices that the instance occupies.
func (a Assignment) Compute() int {
	n := 0
	for _, stage := range a.Slices {
		for _, s := range stage {
			n += s.Kind.Compute
		}
	}
	return n
}

// overhead returns the cost by which assignments of different partitions are compared: the coefficient of variation of the stage times on
// the assigned slices, plus the fraction of the latency that is spent on transfers. It is 0 for a function on one slice.
func (a Assignment) overhead() float64 {
	return float64(a.CV) + a.Transfers.Seconds()/a.Latency.Seconds()
}

// Assign selects a partition of the function and a free slice for each part of it. The memory of each part fits its slice, the worst-case
// latency including transfers and waiting meets the SLO, and the slowest stage sustains the rate. Of the possible assignments of one
// partition it returns the one with the fewest compute slices, then the least memory, then the least latency; the search is exact. Slices
// of kinds that were not ranked are ignored.
//
// The error is ErrNoFit, ErrRate, ErrSLO, or a *share.FieldError.
func (r *Ranking) Assign(free []Slice, d Demand) (Assignment, error) {
	if err := d.validate(); err != nil {
		return Assignment{}, err
	}
	byKind, err := r.groupByKind(free)
	if err != nil {
		return Assignment{}, err
	}
	return r.bestAssignment(r.partitions, byKind, d)
}

// Monolithic is like Assign, but runs the whole function on one slice. The schedulers ESG and INFless assign functions so, and it finds
// the slice to which a pipeline can migrate.
func (r *Ranking) Monolithic(free []Slice, d Demand) (Assignment, error) {
	if err := d.validate(); err != nil {
		return Assignment{}, err
	}
	byKind, err := r.groupByKind(free)
	if err != nil {
		return Assignment{}, err
	}
	for i, p := range r.partitions {
		if p.Monolithic() {
			return r.bestAssignment(r.partitions[i:i+1], byKind, d)
		}
	}
	return Assignment{}, ErrNoFit
}

// bestAssignment returns the assignment of least overhead among the first d.Candidates partitions that fit the free slices.
func (r *Ranking) bestAssignment(partitions []rankedPartition, byKind [][]Slice, d Demand) (Assignment, error) {
	var best Assignment
	found, closest := 0, ErrNoFit
	for i := range partitions {
		a, err := r.assignPartition(&partitions[i], byKind, d)
		if err != nil {
			closest = furthestError(closest, err)
			continue
		}
		if found == 0 || a.overhead() < best.overhead() {
			best = a
		}
		if found++; found >= d.Candidates {
			break
		}
	}
	if found == 0 {
		return Assignment{}, fmt.Errorf("%.64q: %w", r.function.Name, closest)
	}
	return best, nil
}

// furthestError returns the one of two errors that names the later obstacle to an assignment: ErrSLO, then ErrRate, then ErrNoFit.
func furthestError(a, b error) error {
	for _, e := range []error{ErrSLO, ErrRate} {
		if a == e || b == e {
			return e
		}
	}
	return ErrNoFit
}
