package token

import (
	"cmp"
	"slices"
	"time"
)

// queue is FaST-GShare's ready queue: members that wait and have not reached their limit (FG-79, FG-84), by what they
// miss (FG-80).
func (s *Slice) queue() []candidate {
	var ready []candidate
	for _, m := range s.members {
		until := s.now + max(s.config.Floor, min(s.config.part(m.QuotaRequest), s.config.Turn)) // F42; take adds what remains of the limit
		if c, ok := s.candidate(m, &m.own, until); ok && m.waiting() {
			ready = append(ready, c)
		}
	}
	less := s.relative
	if s.config.Policy == HeadOfLine {
		less = s.absolute
	}
	slices.SortStableFunc(ready, func(a, b candidate) int { return less(a.member, b.member) })
	return ready
}

// absolute puts the largest missing time first, as printed: Q_miss = Q_request - Q_used (FG-78).
func (s *Slice) absolute(a, b *member) int { return cmp.Compare(s.missing(b), s.missing(a)) }

// relative puts first who misses the largest part of its request. It is the code's order, missing / (missing + used), and
// goes on beyond the request: there, who used least in proportion comes first.
func (s *Slice) relative(a, b *member) int {
	return cmp.Compare(s.missing(b)*time.Duration(a.QuotaRequest), s.missing(a)*time.Duration(b.QuotaRequest))
}

func (s *Slice) missing(m *member) time.Duration {
	return s.config.part(m.QuotaRequest) - m.own.used(s.now-s.config.Window) - m.lent.used(s.now-s.config.Window)
}
