package rckm

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// State is how hard the members of a slice press on each other (DI-59).
type State int

// Alone on the slice; SLO members are quiet or as fast as ever, so best effort may grow; they are slower, but not by much;
// one of them is far slower.
const (
	None State = iota
	Recovery
	Contention
	Emergency
)

func (s State) String() string {
	return [...]string{"NONE", "RECOVERY", "CONTENTION", "EMERGENCY"}[s]
}

// Pressure is the state of a slice. In an EMERGENCY, Owner is the member that suffers most and Severity its launch cycle,
// per mille of its reference.
type Pressure struct {
	State    State
	Owner    token.ID
	Since    time.Duration
	Severity share.PerMille
}

// Pressure returns the state of the slice as of the last Advance.
func (s *Slice) Pressure() Pressure { return s.pressure }

// judge moves each SLO member between its own states. An EMERGENCY is the member's own: no other can end it (DI-68).
func (s *Slice) judge() {
	for _, m := range s.members {
		if m.Priority != share.SLO {
			continue
		}
		ratio := m.cycles.ratio()
		state := s.stateOf(m, ratio)
		switch {
		case m.quiet():
			m.ratio = 0
		case !m.cycles.learned():
			m.ratio = burst
		case ratio < burst:
			m.ratio = ratio
		default:
			m.ratio = max(m.ratio, m.Violation) // how far it is stretched by neighbours is as it was; it is in need all the same
		}
		if state != m.state {
			m.state, m.since = state, s.now
		}
	}
}

// stateOf is the SLO branch of Algorithm 2 (DI-60 to DI-63). What a long cycle says depends on its batches: if they take no
// longer than ever, it is a burst that needs no help from the neighbours. From a ratio of four on it says nothing (D17): then the
// batches alone decide, and without them the state stays.
func (s *Slice) stateOf(m *member, ratio share.PerMille) State {
	stretch := m.cycles.stretch()
	switch {
	case m.quiet():
		return Recovery // that releases an EMERGENCY, too (D15)
	case !m.cycles.learned():
		return Emergency // its first cycle shows what it takes without neighbours
	case ratio >= burst && !m.cycles.told:
		return m.state
	case ratio >= m.Violation && (ratio < burst && m.state == Emergency || stretch >= recovered):
		return Emergency
	case s.othersSilent(m), stretch < recovered:
		return Recovery
	}
	return Contention
}

// combine makes one state of those of the SLO members: the worst counts, and the worst of those in EMERGENCY (D15). Without
// SLO members nobody is to be protected.
func (s *Slice) combine() {
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

// othersSilent says that nobody but m launches.
func (s *Slice) othersSilent(m *member) bool {
	for _, other := range s.members {
		if other != m && other.silent < window {
			return false
		}
	}
	return true
}
