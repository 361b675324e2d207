package token

import (
	"fmt"
	"time"
)

// Want says that a member has work: it waits for a token (FG-74).
func (s *Slice) Want(now time.Duration, id ID) error {
	return s.with(now, id, func(m *member) { m.want = true })
}

// Idle says that a member has no work. It gives its token back.
func (s *Slice) Idle(now time.Duration, id ID) error {
	return s.with(now, id, func(m *member) {
		m.want = false
		s.stop(m)
	})
}

// Settle reports how long a member kept the GPU busy since it was last settled, kernels that still run included or counted
// when they end. More than the time that passed without a report, one window at most, counts as that time. It may come after
// the token, or not at all: then time held is charged.
func (s *Slice) Settle(now time.Duration, id ID, busy time.Duration) error {
	return s.with(now, id, func(m *member) { m.settle(s.now, busy, s.config) })
}

func (s *Slice) with(now time.Duration, id ID, do func(*member)) error {
	s.reach(now)
	at, known := s.find(id)
	if !known {
		return fmt.Errorf("member %d: %w", id, ErrUnknown)
	}
	do(s.members[at])
	return nil
}
