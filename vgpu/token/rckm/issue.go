package rckm

import "github.com/gshare-dev/gshare/vgpu/share"

// tokens is what a member gets in this tick (Algorithm 2, DI-53).
func (s *Slice) tokens(m *member) int64 {
	if m.Priority == share.SLO {
		return s.protected(m)
	}
	return s.bestEffort(m)
}

// protected is the branch of SLO members (DI-60 to DI-63): the limit, and the request while another is in need. The paper leaves a
// member at its request until it is in need itself; but there it stretches its own cycles, and is in need for no neighbour's doing.
func (s *Slice) protected(m *member) int64 {
	if s.pressure.State == Emergency && m.ratio < m.Violation {
		return m.part(m.Request)
	}
	return m.full()
}

// bestEffort is the branch of the others (DI-64 to DI-67). What was cut for a lesson comes back at once: nobody was pressed.
func (s *Slice) bestEffort(m *member) int64 {
	next := max(m.last, m.lent)
	switch s.pressure.State {
	case None:
		next = m.full()
	case Emergency:
		next = s.cut(m)
	case Recovery:
		if s.ticks%pace == 0 {
			next = grow(next)
		}
	}
	m.lent = s.lesson(m)
	return max(1, m.part(m.Request)*int64(floor)/int64(share.Whole), min(next, m.full()))
}

// lesson is what a member had before the lesson that the slice gives, if it gives one: before the reference of the owner is known.
func (s *Slice) lesson(m *member) int64 {
	if at, known := s.find(s.pressure.Owner); s.pressure.State == Emergency && known && !s.members[at].cycles.learned() {
		return max(m.last, m.lent)
	}
	return 0
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
