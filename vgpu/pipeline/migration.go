package pipeline

import (
	"cmp"
	"errors"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Running is an instance that serves on its slices.
type Running struct {
	ID         int // of the node; orders equal ones
	Ranking    *Ranking
	Assignment Assignment
	Demand     Demand // with Rate, what it has to carry now
}

// Migration is a pipeline to be replaced by an instance on one slice.
type Migration struct {
	Instance int        // the pipeline's ID
	To       Assignment // where the new instance starts; the pipeline keeps its slices until it retires
	// Utilisation is the part of its time in which the slice serves the demanded rate. The new instance need not be hot: where
	// this is little, the slice can be shared (FF-64).
	Utilisation share.PerMille
}

// Migrations names the pipelines that one of the free slices can replace (FF-63): a single slice that carries the same
// demand and answers no later. Those that occupy most compute slices come first, as they give most back, and each free
// slice is used once.
func Migrations(running []Running, free []Slice) ([]Migration, error) {
	var found []Migration
	free = slices.Clone(free)
	for _, i := range slices.SortedFunc(slices.Values(running), byOccupancy) {
		if i.Assignment.Partition.Monolithic() {
			continue
		}
		to, err := i.Ranking.Monolithic(free, i.Demand)
		switch {
		case refused(err) || err == nil && to.Latency > i.Assignment.Latency:
			continue
		case err != nil:
			return nil, err
		}
		found = append(found, Migration{Instance: i.ID, To: to, Utilisation: to.utilisation(i.Demand.Rate)})
		free = slices.DeleteFunc(free, func(s Slice) bool { return s.ID == to.Slices[0][0].ID })
	}
	return found, nil
}

// utilisation at a rate that the assignment carries.
func (a Assignment) utilisation(rate float64) share.PerMille {
	return share.PerMille(min(rate*a.Bottleneck.Seconds(), 1) * float64(share.Whole))
}

func byOccupancy(a, b Running) int {
	return cmp.Or(cmp.Compare(b.Assignment.Compute(), a.Assignment.Compute()), cmp.Compare(a.ID, b.ID))
}

// refused says that there is no place, which is no fault of the input.
func refused(err error) bool {
	return errors.Is(err, ErrRoom) || errors.Is(err, ErrRate) || errors.Is(err, ErrSLO)
}

// Phase is how far a migration is.
type Phase string

// A migration starts the new instance while the pipeline serves, sends it the new requests once it is ready, and retires
// the pipeline when its last request is answered. If the new one fails before, the pipeline serves on.
const (
	Starting  Phase = "starting"
	Draining  Phase = "draining" // of the pipeline; the new instance takes what arrives
	Retired   Phase = "retired"  // its slices are free
	Abandoned Phase = "abandoned"
)

// Next is the phase that follows from what is seen of the two instances: whether the new one is ready or has failed, and
// how many requests the pipeline still has.
func (p Phase) Next(ready, failed bool, outstanding int) Phase {
	switch {
	case p == Starting && failed:
		return Abandoned
	case p == Starting && ready:
		return Draining.Next(ready, failed, outstanding)
	case p == Draining && outstanding == 0:
		return Retired
	}
	return p
}
