package pipeline

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// RunningInstance is an instance that serves requests, as a candidate for migration.
type RunningInstance struct {
	ID         int // unique on the node
	Ranking    *Ranking
	Assignment Assignment
	Demand     Demand // with the present Rate
}

// Migration is a proposal to replace a pipeline by an instance of the whole function on one slice.
type Migration struct {
	Instance int        // the pipeline's ID
	To       Assignment // of the new instance; the pipeline keeps its slices until it has finished
	// Utilisation is the fraction of time for which the slice is busy at the present rate. If it is low, the new instance can share
	// the slice with others.
	Utilisation share.PerMille
}

// Migrations returns the pipelines that a single free slice can replace at the present request rate and without a higher latency.
// Pipelines with the most compute slices come first, because they free the most, and each free slice is used at most once.
func Migrations(running []RunningInstance, free []Slice) ([]Migration, error) {
	var found []Migration
	free = slices.Clone(free)
	for _, i := range slices.SortedFunc(slices.Values(running), compareOccupancy) {
		if i.Assignment.Partition.Monolithic() {
			continue
		}
		to, err := i.Ranking.Monolithic(free, i.Demand)
		switch {
		case isNoFit(err) || err == nil && to.Latency > i.Assignment.Latency:
			continue
		case err != nil:
			return nil, err
		}
		found = append(found, Migration{Instance: i.ID, To: to, Utilisation: to.utilisation(i.Demand.Rate)})
		free = slices.DeleteFunc(free, func(s Slice) bool { return s.ID == to.Slices[0][0].ID })
	}
	return found, nil
}

// utilisation returns the fraction of time for which the slowest stage is busy at the given request rate.
func (a Assignment) utilisation(rate float64) share.PerMille {
	return share.PerMille(min(rate*a.Bottleneck.Seconds(), 1) * float64(share.Whole))
}

// compareOccupancy orders running instances by descending number of compute slices.
func compareOccupancy(a, b RunningInstance) int {
	return cmp.Or(cmp.Compare(b.Assignment.ComputeSlices(), a.Assignment.ComputeSlices()), cmp.Compare(a.ID, b.ID))
}

// isNoFit reports whether an error of Ranking.Assign means that no free slices suffice, rather than that the input is invalid.
func isNoFit(err error) bool {
	return errors.Is(err, ErrNoFit) || errors.Is(err, ErrRate) || errors.Is(err, ErrSLO)
}
