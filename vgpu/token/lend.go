package token

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// owners are the members that wait in a turn of their own.
func (s *Slice) owners() []candidate {
	var list []candidate
	for _, m := range s.members {
		if c, ok := s.candidate(m, &m.own, m.until+m.credit-m.debt); ok && m.owner && m.waiting() && c.affordable() {
			c.until = min(c.until, s.end) // and is renewed in the next turn
			c.need = min(c.need, c.until-s.now)
			list = append(list, c)
		}
	}
	return list
}

// borrowers are the members that wait outside of their own turns and are below their limits, by what they miss. They run
// on SMs that the owners of the turn leave idle, until the turn ends; or until an owner can start that only waits for its
// account, if the SMs would not do for both.
func (s *Slice) borrowers() []candidate {
	var list []candidate
	start, claimed := s.claims()
	for _, m := range s.members {
		until := s.end - m.debt // an overrun is to end within the turn, too
		if m.SM > s.free-claimed {
			until = min(until, start)
		}
		if c, ok := s.candidate(m, &m.lent, until); ok && m.waiting() && c.affordable() {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return s.relative(a.member, b.member) })
	return list
}

// claims are the SMs of the owners that wait for their accounts, and the time when the first can start.
func (s *Slice) claims() (start time.Duration, sm share.PerMille) {
	start = Never
	for _, m := range s.members {
		if !m.owner || !m.waiting() {
			continue
		}
		if at := m.start(&m.own, s.least(m, &m.own)); at > s.now && at < min(m.until, s.end) {
			start, sm = min(start, at), sm+m.SM
		}
	}
	return start, sm
}

// affordable says that the account can pay the whole debt too. Otherwise the member sits out turns.
func (c candidate) affordable() bool { return c.need+c.debt <= c.from.budget }
