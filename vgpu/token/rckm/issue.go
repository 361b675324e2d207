package rckm

import "github.com/gshare-dev/gshare/vgpu/share"

// tokens is what a member gets in this tick (Algorithm 2, DI-53).
func (s *Slice) tokens(m *member) int64 {
	if m.Priority == share.SLO {
		return s.protected(m)
	}
	return s.bestEffort(m)
}

// protected is the branch of SLO members (DI-60 to DI-63): the limit in need, the request otherwise, and slowly more while
// nobody else launches, up to the limit (D14).
func (s *Slice) protected(m *member) int64 {
	switch {
	case s.pressure.State == None, m.state == Emergency:
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
		if s.ticks%pace == 0 || s.protectedSilent() {
			next = grow(m.last)
		}
	}
	return max(m.part(floor*m.Request/share.Whole), min(next, m.part(m.Limit)))
}

// cut divides by how far the owner's cycles are stretched, T_current/T_min. The paper divides by that less one, which
// raises the tokens of neighbours below a stretch of two (D12), and does not say whose stretch (D13: the owner's). The cut
// is of what the member had when the EMERGENCY began: its depth follows the severity, not the number of ticks.
func (s *Slice) cut(m *member) int64 {
	return min(m.part(m.Request), m.entry) * int64(share.Whole) / int64(s.pressure.Severity)
}

func grow(tokens int64) int64 {
	return tokens + max(1, tokens*int64(growth-share.Whole)/int64(share.Whole))
}

// protectedSilent says that no SLO member launches.
func (s *Slice) protectedSilent() bool {
	for _, m := range s.members {
		if m.Priority == share.SLO && m.silent < window {
			return false
		}
	}
	return true
}
