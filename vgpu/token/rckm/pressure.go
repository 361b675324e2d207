package rckm

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// State is how much the shares of a slice slow each other down, from None to Emergency.
type State int

// The states, from the least to the most severe.
const (
	None       State = iota // a member is alone on the slice
	Recovery                // SLO members are quiet or run at full speed, so that best effort may grow
	Contention              // an SLO member is slowed down, but its cycle is below violationRatio
	Emergency               // an SLO member is slowed down to violationRatio or more
)

func (s State) String() string {
	return [...]string{"NONE", "RECOVERY", "CONTENTION", "EMERGENCY"}[s]
}

// Pressure is the state of an elastic slice. In an EMERGENCY, Owner is the share that is slowed down most, and Severity the length of its
// launch cycle in per mille of the length without contention.
type Pressure struct {
	State    State
	Owner    token.ID
	Since    time.Duration // start of the state
	Severity share.PerMille
}

// Pressure returns how much the shares of the slice slow each other down, as of the last Advance.
func (s *Slice) Pressure() Pressure { return s.pressure }

// updateStates sets the state of each SLO share from its launch cycles. A share's EMERGENCY ends only by its own launches.
func (s *Slice) updateStates() {
	for _, m := range s.members {
		if m.Priority != share.SLO {
			continue
		}
		ratio, stretch := m.cycles.ratios()
		state := s.sloState(m, ratio, stretch)
		switch {
		case m.isQuiet():
			m.ratio = 0
		case !m.cycles.hasReference():
			m.ratio = burstRatio
		case ratio < burstRatio:
			m.ratio = ratio
		default:
			m.ratio = max(m.ratio, violationRatio) // such a cycle does not show how much neighbours slow it down, so the last ratio stays
		}
		if state != m.state {
			m.state, m.since = state, s.now
		}
	}
}

// sloState returns the state of an SLO share by Dilu's Algorithm 2. A long launch cycle whose batches take no longer than usual is a burst,
// for which best-effort neighbours need not be cut. Above four times the reference (the length without contention), the length of a cycle
// does not show contention (D17): then the batches alone decide, and without them the state stays.
func (s *Slice) sloState(m *member, ratio, stretch share.PerMille) State {
	switch {
	case m.isQuiet():
		return Recovery // this ends its EMERGENCY, too (D15)
	case !m.cycles.hasReference():
		return Emergency // its first cycle shows what it takes without neighbours
	case ratio >= burstRatio && !m.cycles.hasBatches:
		return m.state
	case ratio >= violationRatio && stretch >= recoveredRatio:
		return Emergency
	case s.othersAreSilent(m), stretch < recoveredRatio:
		return Recovery
	}
	return Contention
}

// updatePressure sets the state of the slice to the worst state of its SLO shares, and its owner to the share in EMERGENCY with the longest
// launch cycle relative to its reference (D15). Without SLO shares the state is Recovery.
func (s *Slice) updatePressure() {
	p := Pressure{State: Recovery}
	for _, m := range s.members {
		if m.Priority != share.SLO || m.state < p.State {
			continue
		}
		if m.state > p.State || m.state == Emergency && m.ratio > p.Severity {
			p = Pressure{State: m.state, Owner: m.ID, Since: m.since, Severity: m.ratio}
		}
	}
	if p.State != Emergency {
		p.Owner, p.Severity = 0, 0
	}
	if len(s.members) <= 1 {
		p = Pressure{State: None} // D16
	}
	if p.State != Emergency && p.State == s.pressure.State {
		p.Since = s.pressure.Since
	} else if p.State != Emergency {
		p.Since = s.now
	}
	s.pressure = p
}

// othersAreSilent reports whether no share but m has launched in the rate window.
func (s *Slice) othersAreSilent(m *member) bool {
	for _, other := range s.members {
		if other != m && other.silent < window {
			return false
		}
	}
	return true
}
