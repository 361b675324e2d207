package pipeline

import (
	"fmt"
	"time"
)

// Assignment is a partition with a slice for each part: how an instance is started (FF-35).
type Assignment struct {
	Partition  Partition
	Slices     [][]Slice     // by stage and part
	Latency    time.Duration // of a request that runs every node, with transfers, without waiting
	Bottleneck time.Duration // expected time of the slowest part; one request is completed in each
	CV         CV            // of the stage times on these slices
	Transfers  time.Duration // the part of Latency between stages
}

// Rate returns the requests a second that the slowest stage sustains.
func (a Assignment) Rate() float64 { return 1 / a.Bottleneck.Seconds() }

// Outstanding returns how many requests the instance may have at once so that the last one is expected to meet the SLO; 0 if
// a single one may miss it. It is the capacity that routing uses (FF-61).
func (a Assignment) Outstanding(slo time.Duration) int {
	if a.Latency > slo {
		return 0
	}
	return int((slo-a.Latency)/max(a.Bottleneck, 1)) + 1
}

// Compute returns the number of compute slices that the instance occupies.
func (a Assignment) Compute() int {
	n := 0
	for _, stage := range a.Slices {
		for _, s := range stage {
			n += s.Kind.Compute
		}
	}
	return n
}

// overhead returns the cost by which partitions are compared: the imbalance on the assigned slices (U7) plus the part of the
// latency that is spent on transfers (U6). It is 0 for a function on one slice.
func (a Assignment) overhead() float64 {
	return float64(a.CV) + a.Transfers.Seconds()/a.Latency.Seconds()
}

// Assign returns a partition and free slices for an instance (FF-30, FF-34, FF-37): the memory of all parts fits, the worst-case
// latency with transfers and waiting meets the SLO, and the slowest part sustains the rate (U8). Of the assignments of one
// partition it selects that of fewest compute slices, then least memory, then least latency (U9); the search is exact. Slices
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

// Monolithic is Assign for the whole function on one slice: how ESG and INFless assign, and the target of a migration (FF-63).
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

// best returns the assignment of least overhead among the first d.Candidates partitions that fit.
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

// closer returns the error that is nearer to success: ErrSLO, then ErrRate, then ErrNoFit.
func furthestError(a, b error) error {
	for _, e := range []error{ErrSLO, ErrRate} {
		if a == e || b == e {
			return e
		}
	}
	return ErrNoFit
}
