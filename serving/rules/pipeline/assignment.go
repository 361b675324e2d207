package pipeline

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Assignment is a function's partition into pipeline stages, with the free slice on which each segment of a stage runs. An
// instance of the function is started from it.
type Assignment struct {
	Partition  Partition
	Slices     [][]Slice     // by stage and segment
	Latency    time.Duration // of a request that runs every node, with transfers but without waiting
	Bottleneck time.Duration // expected time of the slowest segment: the pipeline completes one request per Bottleneck
	CV         CV            // of the stage times on these slices
	Transfers  time.Duration // the transfer time within Latency
}

// Rate returns the throughput of the pipeline in requests per second, which is limited by its slowest stage.
func (a Assignment) Rate() float64 { return 1 / a.Bottleneck.Seconds() }

// Outstanding returns how many requests the instance may have at once such that the last one is still expected to meet the SLO; 0
// if even a single one may miss it. It is the capacity that package routing uses.
func (a Assignment) Outstanding(slo time.Duration) int {
	if a.Latency > slo {
		return 0
	}
	return int((slo-a.Latency)/max(a.Bottleneck, 1)) + 1
}

// AtOnce returns how many requests the instance should have at once if it has no queue of its own: the fewest that give nine tenths of its throughput,
// because each further one makes all of them wait longer, but no more than it can always have and still answer within the SLO. It is at least 1, and
// exactly 1 on a single slice, where requests run one after another.
func (a Assignment) AtOnce(slo time.Duration) int {
	if a.Partition.Monolithic() {
		return 1
	}
	bottleneck := max(a.Bottleneck, 1)
	enough := (9*a.Latency-1)/(10*bottleneck) + 1 // n requests give n answers per Latency, but at most one per Bottleneck
	return int(max(1, min(enough, slo/bottleneck)))
}

// ComputeSlices returns the number of MIG compute slices that the instance occupies.
func (a Assignment) ComputeSlices() int {
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
	return float64(a.CV) + a.Transfers.Seconds()/a.Latency.Seconds() // U6, U7
}

// Assign selects a partition of the function and a free slice for each segment (nodes that share one slice) such that each slice holds
// its segment's memory, the worst-case latency including transfers and waiting meets the SLO, and the slowest stage sustains the rate. Of
// the possible assignments of one partition it returns the one with the fewest compute slices, then the least memory, then the least
// latency; the search is exact. Slices of kinds that were not ranked are ignored.
//
// The error is ErrNoFit, ErrRate, ErrSLO, or a *share.FieldError.
func (r *Ranking) Assign(free []Slice, d Demand) (Assignment, error) {
	return r.bestAssignment(r.partitions, free, d)
}

// Monolithic is like Assign, but runs the whole function on one slice, which is how the schedulers ESG and INFless assign functions. It
// also finds the slice to which a pipeline can migrate.
func (r *Ranking) Monolithic(free []Slice, d Demand) (Assignment, error) {
	at := slices.IndexFunc(r.partitions, func(p rankedPartition) bool { return p.Monolithic() })
	return r.bestAssignment(r.partitions[max(at, 0):at+1], free, d)
}

// bestAssignment returns the assignment of least overhead among the first d.Candidates of the given partitions that fit the free slices.
func (r *Ranking) bestAssignment(partitions []rankedPartition, free []Slice, d Demand) (Assignment, error) {
	if err := d.validate(); err != nil {
		return Assignment{}, err
	}
	byKind, err := r.groupByKind(free)
	if err != nil {
		return Assignment{}, err
	}
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

// furthestError returns whichever of two errors is the later obstacle to an assignment: ErrSLO, then ErrRate, then ErrNoFit.
func furthestError(a, b error) error {
	for _, e := range []error{ErrSLO, ErrRate} {
		if a == e || b == e {
			return e
		}
	}
	return ErrNoFit
}

// Demand is the request rate that an instance has to sustain and the latency objective that it has to meet.
type Demand struct {
	SLO   time.Duration // maximum time from arrival to reply of one request
	Queue time.Duration // expected time that a request waits before it starts
	Rate  float64       // requests per second that the instance must sustain; 0 means any
	// Candidates is the number of fitting partitions, in the order of the ranking, whose assignments are compared (U7). 0 and 1
	// select the first one that fits, as in the paper of FluidFaaS.
	Candidates int
}

// MaxRate is the largest valid request rate: one request per microsecond.
const MaxRate = 1e6

func (d Demand) validate() error {
	switch {
	case d.SLO <= 0 || d.SLO > 24*time.Hour:
		return share.Invalid("slo", "%v is not above 0 and at most a day", d.SLO)
	case d.Queue < 0 || d.Queue > 24*time.Hour:
		return share.Invalid("queue", "%v is outside 0 to a day", d.Queue)
	case !(d.Rate >= 0 && d.Rate <= MaxRate): // NaN too
		return share.Invalid("rate", "%v requests/s is outside 0 to %g", d.Rate, float64(MaxRate))
	case d.Candidates < 0:
		return share.Invalid("candidates", "%d is negative", d.Candidates)
	}
	return nil
}

// maxSegmentTime returns the longest mean time that a request may spend on one slice of the pipeline so that it sustains the rate.
func (d Demand) maxSegmentTime() time.Duration {
	if d.Rate == 0 {
		return math.MaxInt64
	}
	return time.Duration(min(1e9/d.Rate, math.MaxInt64/2))
}

// The reasons why a function cannot be assigned. With ErrRate its memory fits; with ErrSLO the rate could be sustained, too.
var (
	ErrNoFit = errors.New("no partition fits the free slices: more or larger slices are needed")
	ErrRate  = errors.New("no partition that fits the free slices sustains the rate: larger slices or more instances are needed")
	ErrSLO   = errors.New("no partition that fits the free slices meets the SLO: larger slices or a longer SLO are needed")
)

// Assignments returns an assignment for each partition that fits the free slices, in the order of the ranking. The first is that of Assign with one
// candidate; the others are to be tried if an assignment turns out to be impossible. The sequence ends after maxLooked partial choices, because the search
// for a function that only just misses its objective would take some seconds per node. The error is a *share.FieldError.
func (r *Ranking) Assignments(free []Slice, d Demand) (iter.Seq[Assignment], error) {
	if err := d.validate(); err != nil {
		return nil, err
	}
	byKind, err := r.groupByKind(free)
	if err != nil {
		return nil, err
	}
	return func(yield func(Assignment) bool) { r.assignEach(byKind, d, maxLooked, yield) }, nil
}

// assignEach yields the assignments of partitions until it has looked at `most` partial choices or more. It returns how many it has
// looked at.
func (r *Ranking) assignEach(free [][]Slice, d Demand, most int, yield func(Assignment) bool) (looked int) {
	for i := 0; i < len(r.partitions) && looked < most; i++ {
		a, ok, n := r.assignWithin(&r.partitions[i], free, d)
		looked += n
		if ok && !yield(a) {
			break
		}
	}
	return looked
}

// maxLooked bounds the partial choices that Assignments looks at; some million of them take a second.
const maxLooked = 1_000_000
