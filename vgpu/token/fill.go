package token

import (
	"cmp"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// candidate is a share that waits for a token and whose account can pay now for a token of at least minLength that ends by until.
type candidate struct {
	*member
	account          *account
	minLength, until time.Duration
}

// grantInOrder grants tokens to candidates, in their order, while SMs are free. Once a candidate finds too few free SMs, later ones get
// only tokens that end by a barrier. barrierOf computes it from the latest time at which that candidate can start.
func (s *Slice) grantInOrder(candidates []candidate, barrierOf func(start time.Duration) time.Duration) {
	barrier := Never
	for _, c := range candidates {
		switch {
		case c.SM <= s.free:
			s.grant(c, min(c.until, barrier))
		case barrier == Never:
			barrier = barrierOf(s.members.timeWhenFree(s.free, c.SM))
		}
	}
}

// grant grants a token to a candidate, unless less than its minimum length is left until the given time.
func (s *Slice) grant(c candidate, until time.Duration) {
	if until-s.now < c.minLength {
		return
	}
	s.sequence++
	s.free -= c.SM
	c.startToken(s.now, until, c.minLength, c.account, s.sequence)
}

// minTokenLength returns the length of the shortest token worth granting to a share: Config.Floor, or less for a small budget or at the end
// of its own turns, which no other share can use. A share whose token just ended may continue for less, as that needs no switch.
func (s *Slice) minTokenLength(m *member, l *account) time.Duration {
	switch {
	case m.announced:
		return 2 * roundingTolerance
	case m.owner && l == &m.own:
		return min(s.config.Floor, max(2*roundingTolerance, (min(m.ownUntil-s.now, l.budget)-m.owed())/2))
	}
	return min(s.config.Floor, l.budget)
}

// candidateFor returns a share as a candidate for a token that ends by until, and false if its account cannot pay for the token now.
func (s *Slice) candidateFor(m *member, l *account, until time.Duration) (candidate, bool) {
	c := candidate{m, l, s.minTokenLength(m, l), until}
	return c, l.budget > 0 && !m.overruns && !m.waitsForDebt() && until-s.now >= c.minLength && m.earliestStart(l, c.minLength) <= s.now
}

// timeWhenFree returns the time at which enough tokens have ended for the given SMs to be free, or Never. Some are free now.
func (list members) timeWhenFree(free, sm share.PerMille) time.Duration {
	var live []*member
	for _, m := range list {
		if m.live {
			live = append(live, m)
		}
	}
	slices.SortStableFunc(live, func(a, b *member) int { return cmp.Compare(a.token.Deadline, b.token.Deadline) })
	for _, m := range live {
		if free += m.SM; free >= sm {
			return m.token.Deadline
		}
	}
	return Never
}
