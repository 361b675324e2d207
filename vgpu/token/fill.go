package token

import (
	"cmp"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// candidate is a member whose account can pay for a token of at least need that ends at until or earlier.
type candidate struct {
	*member
	from        *ledger
	need, until time.Duration
}

// fill is the SM allocation adapter (FG-81): it goes through the queue and gives a token to whoever finds enough SMs
// free, counting those given to the ones before (FG-82, FG-83). What a candidate that finds too few does to those behind
// it is the policy's: it stops them, or not, or lets those pass whose tokens end before it can start (F44).
func (s *Slice) fill(queue []candidate) {
	barrier := Never
	for _, c := range queue {
		until := min(c.until, barrier)
		switch {
		case c.SM <= s.free:
			s.grant(c, until)
		case s.config.Policy == HeadOfLine:
			return
		case s.config.Policy != SkipAhead && barrier == Never:
			barrier = s.roomFor(c.SM)
		}
	}
}

// grant gives the token, unless a barrier makes it too short.
func (s *Slice) grant(c candidate, until time.Duration) {
	if until-s.now < c.need {
		return
	}
	s.sequence++
	s.free -= c.SM
	c.take(s.now, until, c.need, c.from, s.sequence)
}

// least is the shortest token worth giving: the floor, or what a small budget holds, or half of what is left of an
// owner's time: nobody else may have it. Whoever just ran can go on for less: it costs no switch.
func (s *Slice) least(m *member, l *ledger) time.Duration {
	switch {
	case m.told:
		return 2 * rounding
	case m.owner && l == &m.own:
		return min(s.config.Floor, max(2*rounding, (min(m.until-s.now, l.budget)-m.debt)/2))
	}
	return min(s.config.Floor, l.budget)
}

// candidate is the member if the account can pay now for a token worth giving that ends at until.
func (s *Slice) candidate(m *member, l *ledger, until time.Duration) (candidate, bool) {
	c := candidate{m, l, s.least(m, l), until}
	return c, l.budget > 0 && until-s.now >= c.need && m.start(l, c.need) <= s.now
}

// roomFor is when so many SMs are free at the latest.
func (s *Slice) roomFor(sm share.PerMille) time.Duration {
	var live []*member
	for _, m := range s.members {
		if m.live {
			live = append(live, m)
		}
	}
	slices.SortStableFunc(live, func(a, b *member) int { return cmp.Compare(a.token.Deadline, b.token.Deadline) })
	free := s.free
	for _, m := range live {
		if free += m.SM; free >= sm {
			return m.token.Deadline
		}
	}
	return Never
}
