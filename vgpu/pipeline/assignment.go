package pipeline

import (
	"fmt"
	"time"
)

// Assignment is a partition with a slice for each part: what the node writes into the function's configuration and starts
// (FF-35). Slices are by stage and part.
type Assignment struct {
	Partition  Partition
	Slices     [][]Slice
	Latency    time.Duration // of a request that runs every node, transfers included, without waiting
	Bottleneck time.Duration // expected time of the slowest part; a request enters and leaves once in it
	CV         CV            // of the stage times on these slices
	Transfers  time.Duration // the part of Latency that is spent between stages
}

// Rate is the requests a second that the slowest stage carries.
func (a Assignment) Rate() float64 { return 1 / a.Bottleneck.Seconds() }

// Outstanding is how many requests the instance may have at once so that the last of them is expected to meet the SLO; 0 if
// not even one is sure to. It is the capacity that routing fills (FF-61).
func (a Assignment) Outstanding(slo time.Duration) int {
	if a.Latency > slo {
		return 0
	}
	return int((slo-a.Latency)/max(a.Bottleneck, 1)) + 1
}

// Compute is the compute slices that the instance occupies.
func (a Assignment) Compute() int {
	n := 0
	for _, stage := range a.Slices {
		for _, s := range stage {
			n += s.Kind.Compute
		}
	}
	return n
}

// overhead is what a choice among partitions looks at: the imbalance on the slices at hand (U7), and the part of the
// latency that only the cut costs (U6). Both are 0 for a function on one slice.
func (a Assignment) overhead() float64 {
	return float64(a.CV) + a.Transfers.Seconds()/a.Latency.Seconds()
}

// Assign chooses a partition and free slices for an instance (FF-30, FF-34, FF-37): the parts' memory fits, the parts'
// times with transfers and waiting keep the SLO in the worst case, and the slowest part carries the rate (U8). Of the
// assignments of one partition it takes the one of fewest compute slices, then of least memory, then of least latency
// (U9). The search is exact. Slices of kinds that were not ranked are passed over.
//
// It fails with ErrRoom, ErrRate or ErrSLO, or a *share.FieldError.
func (r *Ranking) Assign(free []Slice, d Demand) (Assignment, error) {
	if err := d.validate(); err != nil {
		return Assignment{}, err
	}
	stock, err := r.stock(free)
	if err != nil {
		return Assignment{}, err
	}
	return r.best(r.partitions, stock, d)
}

// Monolithic is Assign without pipelines: as ESG and INFless place, and what a pipeline may migrate to (FF-63).
func (r *Ranking) Monolithic(free []Slice, d Demand) (Assignment, error) {
	if err := d.validate(); err != nil {
		return Assignment{}, err
	}
	stock, err := r.stock(free)
	if err != nil {
		return Assignment{}, err
	}
	for i, p := range r.partitions {
		if p.Monolithic() {
			return r.best(r.partitions[i:i+1], stock, d)
		}
	}
	return Assignment{}, ErrRoom
}

func (r *Ranking) best(partitions []ranked, stock [][]Slice, d Demand) (Assignment, error) {
	var best Assignment
	found, closest := 0, ErrRoom
	for i := range partitions {
		a, err := r.assign(&partitions[i], stock, d)
		if err != nil {
			closest = closer(closest, err)
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

func closer(a, b error) error {
	for _, e := range []error{ErrSLO, ErrRate} {
		if a == e || b == e {
			return e
		}
	}
	return ErrRoom
}
