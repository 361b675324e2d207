package token

import (
	"cmp"
	"slices"
	"time"
)

// Advance brings the slice to the time now and returns what changes for its members, what is taken first. It wants to be
// called again at the time next, which is Never if only an event can change anything.
func (s *Slice) Advance(now time.Duration) (changes []Change, next time.Duration) {
	s.reach(now)
	for _, m := range s.members {
		if m.live && m.token.Deadline <= s.now {
			s.stop(m)
		}
	}
	s.issue()
	return s.changes(), s.wake()
}

// issue gives out tokens by the policy.
func (s *Slice) issue() {
	if s.config.Policy != Table {
		s.fill(s.queue())
		return
	}
	if !slices.ContainsFunc(s.members, func(m *member) bool { return m.want }) {
		return
	}
	s.timetable.advance(s.now, s.config)
	s.fill(s.owners())
	s.fill(s.borrowers())
}

// changes compares what the server knows with what is.
func (s *Slice) changes() []Change {
	var list []Change
	for _, m := range s.members {
		switch {
		case m.told && !m.live:
			list = append(list, Change{m.ID, Revoke, m.token})
		case m.live && !m.told:
			list = append(list, Change{m.ID, Grant, m.token})
		case m.live && m.token.Sequence != m.known:
			list = append(list, Change{m.ID, Renew, m.token})
		}
		m.told, m.known = m.live, m.token.Sequence
	}
	slices.SortStableFunc(list, func(a, b Change) int { return -cmp.Compare(a.Kind, b.Kind) })
	return list
}

// wake is the next time at which something changes by itself.
func (s *Slice) wake() time.Duration {
	next := Never
	for _, m := range s.members {
		switch {
		case m.live:
			next = min(next, m.token.Deadline)
		case m.want:
			next = min(next, s.chance(m))
		}
	}
	return next
}

// chance is the next time at which a waiting member may get a token by its accounts and turns. For SMs it waits for the
// deadlines of others.
func (s *Slice) chance(m *member) time.Duration {
	next := Never
	if s.config.Policy == Table {
		next = s.end
	}
	for _, l := range m.accounts(s.config.Policy) {
		if at := m.start(l, s.least(m, l)); at > s.now {
			next = min(next, at)
		}
	}
	return next
}

// accounts are those that may pay for a token now.
func (m *member) accounts(p Policy) (list []*ledger) {
	if p != Table || m.owner {
		list = append(list, &m.own)
	}
	if m.lent.budget > 0 {
		list = append(list, &m.lent)
	}
	return list
}
