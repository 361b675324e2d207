package rckm

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// horizon keeps sums of times from overflowing.
const horizon = token.Never / 2

// Slice issues the block tokens of one slice. Times count from its start; a time before the last one counts as the last
// one. It is not safe for concurrent use.
type Slice struct {
	config   Config
	now      time.Duration
	ticks    int64     // processed
	members  []*member // by ID
	pressure Pressure
	awake    bool // something may change at the next tick
	sequence uint64
}

// New returns a slice without members.
func New(c Config) (*Slice, error) {
	c.Tick = cmp.Or(c.Tick, 5*time.Millisecond)
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Slice{config: c}, nil
}

// Join adds a member with the tokens of its request (D16).
func (s *Slice) Join(now time.Duration, m Member) error {
	s.reach(now)
	at, known := s.find(m.ID)
	switch {
	case !m.valid():
		return fmt.Errorf("member %d asks for %v to %v of the SMs as %q", m.ID, m.Request, m.Limit, m.Priority)
	case known:
		return fmt.Errorf("member %d: %w", m.ID, token.ErrKnown)
	}
	m.Violation = cmp.Or(m.Violation, violation)
	s.members = slices.Insert(s.members, at, newMember(m))
	s.awake = true
	return nil
}

// Leave removes a member. What it held of the pressure ends with it (D15).
func (s *Slice) Leave(now time.Duration, id token.ID) error {
	return s.with(now, id, func(*member) error {
		at, _ := s.find(id)
		s.members = slices.Delete(s.members, at, at+1)
		s.awake = true
		return nil
	})
}

// Resize moves a member's limit between its request and the limit that it joined with, which its processes keep as cap. It binds from
// the next tick on.
func (s *Slice) Resize(now time.Duration, id token.ID, limit share.PerMille) error {
	return s.with(now, id, func(m *member) error {
		if limit < m.Request || limit > m.cap {
			return fmt.Errorf("member %d: a limit of %v is not between %v and %v", id, limit, m.Request, m.cap)
		}
		m.Limit = limit
		s.awake = true
		return nil
	})
}

// Report says what a member launched since its last report (DI-58).
func (s *Slice) Report(now time.Duration, id token.ID, l Launches) error {
	return s.with(now, id, func(m *member) error {
		m.report(s.now, l)
		s.awake = true
		return nil
	})
}

// MaxTokens is what the whole slice is worth for a member, in its blocks a tick; 0 for a stranger.
func (s *Slice) MaxTokens(id token.ID) int64 {
	if at, known := s.find(id); known {
		return s.members[at].max()
	}
	return 0
}

func (s *Slice) with(now time.Duration, id token.ID, do func(*member) error) error {
	s.reach(now)
	at, known := s.find(id)
	if !known {
		return fmt.Errorf("member %d: %w", id, token.ErrUnknown)
	}
	return do(s.members[at])
}

func (s *Slice) reach(now time.Duration) { s.now = min(max(s.now, now), horizon) }

func (s *Slice) find(id token.ID) (int, bool) {
	return slices.BinarySearchFunc(s.members, id, func(m *member, id token.ID) int { return cmp.Compare(m.ID, id) })
}
