package token

import (
	"cmp"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// candidate is a waiting member whose account can pay now for a token of the shortest length that ends by until.
type candidate struct {
	*member
	payer           *ledger
	shortest, until time.Duration
}

// fill grants tokens to the candidates that find enough free SMs, in their order. Behind the first one that does not, tokens end by the
// barrier, which barrierOf returns for the latest time at which that candidate can start.
func (s *Slice) fill(candidates []candidate, barrierOf func(start time.Duration) time.Duration) {
	barrier := Never
	for _, c := range candidates {
		switch {
		case c.SM <= s.free:
			s.grant(c, min(c.until, barrier))
		case barrier == Never:
			barrier = barrierOf(s.freeBy(c.SM))
		}
	}
}

// grant grants the candidate a token, unless until makes it too short.
func (s *Slice) grant(c candidate, until time.Duration) {
	if until-s.now < c.shortest {
		return
	}
	s.sequence++
	s.free -= c.SM
	c.take(s.now, until, c.shortest, c.payer, s.sequence)
}

// shortest returns the length of the shortest token worth granting: the floor, or less for a small budget or at the end of a member's
// own time, which no other member can use. A member whose token just ended may continue for less, as that needs no switch.
func (s *Slice) shortest(m *member, l *ledger) time.Duration {
	switch {
	case m.announced:
		return 2 * rounding
	case m.owner && l == &m.own:
		return min(s.config.Floor, max(2*rounding, (min(m.ownUntil-s.now, l.budget)-m.debt)/2))
	}
	return min(s.config.Floor, l.budget)
}

// candidate returns the member as a candidate for a token that ends by until, and false if the account cannot pay for it now.
func (s *Slice) candidate(m *member, l *ledger, until time.Duration) (candidate, bool) {
	c := candidate{m, l, s.shortest(m, l), until}
	return c, l.budget > 0 && until-s.now >= c.shortest && m.start(l, c.shortest) <= s.now
}

// freeBy returns the time by which the deadlines of live tokens free that many SMs.
func (s *Slice) freeBy(sm share.PerMille) time.Duration {
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
