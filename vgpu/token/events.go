package token

import (
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
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
	return s.with(now, id, func(m *member) { s.block(m, m.settle(s.now, busy, s.config)) })
}

// block makes good what members lost whose own time began while a kernel that overran its token still kept their SMs. They
// cannot see it themselves: they measure a kernel from when it could have begun.
func (s *Slice) block(m *member, over time.Duration) {
	if m.live {
		return
	}
	from := m.ended
	m.ended = min(m.ended+over, s.now)
	for _, o := range s.members {
		if o.live && o.from == &o.own && o.SM+m.SM > share.Whole {
			lost := m.ended - max(from, o.began)
			o.credit = min(o.credit+max(0, lost), s.config.Window)
		}
	}
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
