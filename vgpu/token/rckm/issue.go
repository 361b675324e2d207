package rckm

import "github.com/gshare-dev/gshare/vgpu/share"

// tokens is what a member gets in this tick (Algorithm 2, DI-53).
func (s *Slice) tokens(m *member) int64 {
	if m.Priority == share.SLO {
		return s.protected(m)
	}
	return s.bestEffort(m)
}

// protected is the branch of SLO members (DI-60 to DI-63): the limit in need and in a burst, the request otherwise, and slowly
// more while nobody else launches, up to the limit (D14).
func (s *Slice) protected(m *member) int64 {
	switch {
	case s.pressure.State == None, m.ratio >= m.Violation: // so it is in an EMERGENCY
		return m.part(m.Limit)
	case m.silent < window && s.othersSilent(m):
		return min(grow(m.last), m.part(m.Limit))
	}
	return m.part(m.Request)
}

// bestEffort is the branch of the others (DI-64 to DI-67).
func (s *Slice) bestEffort(m *member) int64 {
	next := m.last
	switch s.pressure.State {
	case None:
		next = m.part(m.Limit)
	case Emergency:
		next = s.cut(m)
	case Recovery:
		if s.ticks%pace == 0 {
			next = grow(m.last)
		}
	}
	return max(1, m.part(m.Request)*int64(floor)/int64(share.Whole), min(next, m.part(m.Limit)))
}

// cut divides the request by how far the owner's cycle is stretched, T_current/T_min. The paper divides by that less one,
// which raises the tokens of neighbours below a stretch of two (D12), does not say whose stretch (D13: the owner's), and
// divides again at each tick: here the depth follows the severity, not the number of ticks.
func (s *Slice) cut(m *member) int64 {
	return min(m.part(m.Request)*int64(share.Whole)/int64(s.pressure.Severity), m.last)
}

func grow(tokens int64) int64 {
	return tokens + max(1, tokens*int64(growth-share.Whole)/int64(share.Whole))
}
