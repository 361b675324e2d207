package residency

import (
	"cmp"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Holder is what the agent has recorded about an instance on a slice of class swap.
type Holder struct {
	Level  Level
	Memory share.Bytes // of its share
	Kept   share.Bytes // what it keeps of the slice if it is Warm
}

// holds returns how much memory of the slice the instance may allocate.
func (h Holder) holds() share.Bytes {
	return h.Level.Charge(share.Share{Memory: h.Memory}, h.Kept).Memory
}

// Held returns how much memory of a slice the instances may allocate together.
func Held(all []Holder) (sum share.Bytes) {
	for _, h := range all {
		sum += h.holds()
	}
	return sum
}

// FitsTurn reports whether an instance of class swap may hold its memory on a slice, because it gets its turn or starts: every other instance must be
// parked, and the memory must fit beside what those keep.
func FitsTurn(slice, memory share.Bytes, others []Holder) bool {
	for _, h := range others {
		if h.Level != Warm {
			return false
		}
	}
	return memory <= slice-Held(others)
}

// InTurn is an instance on a slice of class swap, as gshare-controller sees it. The times of all instances are on the same clock, whichever it is.
type InTurn struct {
	ID       string
	Stage    Stage
	Since    time.Duration // when it entered the stage
	Waiting  int           // requests for it that wait at the gateways
	InFlight int           // requests that it is serving
	Due      time.Duration // when the first waiting request must be answered
	Used     time.Duration // when it last had its turn; 0 if never
	Begin    time.Duration // how much longer than TurnPolicy.Begin it may take to begin, by its probes; at most TurnPolicy.Start
}

// Stage says how far an instance has got with its turn.
type Stage int8

// The stages. An instance that has not started is Waiting too: it starts in its first turn. An instance is Beginning from the moment it is wanted
// above Warm until it can answer requests, and Leaving from the moment it is wanted Warm until it has given the memory back.
const (
	Waiting Stage = iota
	Beginning
	Serving
	Leaving
)

// TurnPolicy bounds turns.
type TurnPolicy struct {
	For   time.Duration // how long an instance may serve while another waits
	Idle  time.Duration // the same, while it has no requests
	Begin time.Duration // how long an instance may take to begin, while another waits, before it loses the turn
	Start time.Duration // the most that one may take beyond Begin, whatever probes its tenant has set
}

// TurnPeriod is the time between two decisions of NextTurn on a cluster, where gateways report every second.
const TurnPeriod = time.Second

// ClusterTurns returns the bounds of turns on a cluster, where a turn takes about five writes to the API server.
func ClusterTurns() TurnPolicy {
	return TurnPolicy{For: 10 * time.Second, Idle: time.Second, Begin: 5 * time.Minute, Start: 30 * time.Minute}
}

// NextTurn returns the instance that is to have the turn on a slice, which may be the one that has it already. It returns none if that one is to give
// the memory back, or has not finished doing so, or if no instance needs the turn.
//
// An instance keeps its turn as long as every other one has no requests and has had a turn before. Of the waiting instances, the one whose request
// must be answered first has the next turn, because an instance without load is never late. After those with requests come the ones that have never
// had a turn, so that every instance that is wanted gets to start.
func NextTurn(now time.Duration, all []InTurn, p TurnPolicy) (id string, ok bool) {
	var has *InTurn
	for i := range all {
		if a := &all[i]; a.Stage != Waiting && (has == nil || a.Stage > has.Stage || a.Stage == has.Stage && compareIDs(a, has) < 0) {
			has = a // if someone else's writes have raised several, the one that has got furthest goes on
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
	case next.Waiting == 0: // it has no requests and only wants to start
		return has.ID, true
	}
	return has.ID, now-has.Since < limit
}

// nextInTurn returns the waiting instance that is to have the next turn; nil if none needs one.
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
