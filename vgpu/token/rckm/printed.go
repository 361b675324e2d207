package rckm

import (
	"github.com/gshare-dev/gshare/vgpu/share"
)

// issuePrinted is Algorithm 2 as the paper prints it, for comparison: one state that every SLO member overwrites, tokens of
// the others divided by the relative change of a launch cycle, no floor, no bound for growth. Where it is silent, the state
// begins as NONE and the change is that of the SLO member that was looked at last.
func (s *Slice) issuePrinted() {
	for _, m := range s.members {
		if m.Priority == share.SLO {
			s.pressure.State, m.last = s.printedSLO(m)
		} else {
			m.last = s.printedBestEffort(m)
		}
		m.issue(min(max(m.last, 1), most))
	}
}

func (s *Slice) printedSLO(m *member) (State, int64) {
	s.pressure.Severity = perMille(m.cycles.current(), m.cycles.least)
	switch {
	case s.pressure.Severity > m.Violation:
		return Emergency, m.part(m.Limit)
	case m.silent >= window:
		return Recovery, m.part(m.Request)
	case s.othersSilent(m):
		return Recovery, grow(m.last)
	}
	return Contention, m.part(m.Request)
}

func (s *Slice) printedBestEffort(m *member) int64 {
	switch s.pressure.State {
	case None:
		return m.part(m.Limit)
	case Emergency:
		return min(m.part(m.Request), m.last) * int64(share.Whole) / int64(s.pressure.Severity-share.Whole)
	case Recovery:
		return min(grow(m.last), m.part(m.Limit))
	}
	return m.last
}
