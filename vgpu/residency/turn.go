package residency

import (
	"cmp"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Holder is what an instance on a slice of class swap is recorded with.
type Holder struct {
	Level  Level
	Memory share.Bytes // of its share
	Kept   share.Bytes // of the slice, if it is Warm
}

// holds returns the memory of the slice that the instance may allocate.
func (h Holder) holds() share.Bytes {
	return h.Level.Charge(share.Share{Memory: h.Memory}, h.Kept).Memory
}

// Held returns the memory of a slice that instances may allocate together.
func Held(all []Holder) (sum share.Bytes) {
	for _, h := range all {
		sum += h.holds()
	}
	return sum
}

// FitsTurn reports whether an instance of class swap may hold its memory of a slice, as it has its turn or starts: no other one may hold more than it
// keeps when it is parked, and all that is kept leaves room.
func FitsTurn(slice, memory share.Bytes, others []Holder) bool {
	for _, h := range others {
		if h.Level != Warm {
			return false
		}
	}
	return memory <= slice-Held(others)
}

// InTurn is an instance on a slice of class swap, as gshare-controller sees it. Times are on any clock that all of them have in common.
type InTurn struct {
	ID       string
	Stage    Stage
	Since    time.Duration // when it came to the stage
	Waiting  int           // requests at the gateways that wait for it
	InFlight int           // that it has
	Due      time.Duration // when the first that waits is to be answered
	Used     time.Duration // when it had its turn last; 0: never
	Begin    time.Duration // that it may take to begin beyond TurnPolicy.Begin, as its probes say; TurnPolicy.Start bounds it
}

// Stage is how far an instance is with its turn.
type Stage int8

// The stages. One that has not started is Waiting too: it starts in its first turn. It is Beginning from when it is wanted above Warm until it can
// answer requests, and Leaving from when it is wanted Warm until it has given the memory back.
const (
	Waiting Stage = iota
	Beginning
	Serving
	Leaving
)

// TurnPolicy bounds turns.
type TurnPolicy struct {
	For   time.Duration // that an instance serves while another waits
	Idle  time.Duration // as For, if it has no requests at the moment
	Begin time.Duration // that one may take to begin that does not get on, while another waits
	Start time.Duration // that one may take at most beyond Begin, whatever its tenant has written
}

// TurnPeriod is the time between two decisions of NextTurn on a cluster, as gateways report each second.
const TurnPeriod = time.Second

// ClusterTurns returns the bounds of turns on a cluster, where a turn takes about five writes to the API server.
func ClusterTurns() TurnPolicy {
	return TurnPolicy{For: 10 * time.Second, Idle: time.Second, Begin: 5 * time.Minute, Start: 30 * time.Minute}
}

// NextTurn returns the instance of a slice that is to have the turn, which may be the one that has it; none if that one is to give the memory back, or has
// not done so yet, or if nobody needs it.
//
// An instance keeps its turn while no other one has requests, or has never had a turn. Of those that wait, the one whose request is due first has the next
// turn, as one without load is not late; then, one that has never had a turn, so that what is wanted to be there starts.
func NextTurn(now time.Duration, all []InTurn, p TurnPolicy) (id string, ok bool) {
	var has *InTurn
	for i := range all {
		if a := &all[i]; a.Stage != Waiting && (has == nil || a.Stage > has.Stage || a.Stage == has.Stage && compareIDs(a, has) < 0) {
			has = a // of several, as somebody has written that, those that are farther go on
		}
	}
	next := nextInTurn(all)
	switch {
	case has == nil && next == nil:
		return "", false
	case has == nil:
		return next.ID, true
	case has.Stage == Leaving:
		return "", false
	case next == nil:
		return has.ID, true
	}
	limit := p.For
	switch {
	case has.Stage == Beginning:
		limit = p.Begin + min(has.Begin, p.Start)
	case has.Waiting+has.InFlight == 0:
		limit = p.Idle
	case next.Waiting == 0: // it only wants to start
		return has.ID, true
	}
	return has.ID, now-has.Since < limit
}

// nextInTurn returns which of those that wait is to have its turn next; nil if none needs one.
func nextInTurn(all []InTurn) (next *InTurn) {
	for i := range all {
		a := &all[i]
		if a.Stage != Waiting || a.Waiting == 0 && a.Used > 0 {
			continue
		}
		if next == nil || compareTurns(a, next) < 0 {
			next = a
		}
	}
	return next
}

func compareTurns(a, b *InTurn) int {
	switch {
	case (a.Waiting > 0) != (b.Waiting > 0):
		return cmp.Compare(min(b.Waiting, 1), min(a.Waiting, 1))
	case a.Waiting > 0:
		return cmp.Or(cmp.Compare(a.Due, b.Due), cmp.Compare(a.Used, b.Used), compareIDs(a, b))
	}
	return compareIDs(a, b)
}

func compareIDs(a, b *InTurn) int { return cmp.Compare(a.ID, b.ID) }
