package token

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Errors that callers test for.
var (
	ErrUnknown = errors.New("no such member")
	ErrKnown   = errors.New("a member of that ID is there already")
	ErrNoRoom  = errors.New("the members would not fit the window")
)

// Never is later than everything.
const Never = time.Duration(math.MaxInt64)

// horizon keeps sums of times from overflowing; it is 146 years away.
const horizon = Never / 2

// rounding is what the accounts of turns may exceed the request by in a window. The turns of a table are whole nanoseconds
// and may take one more each, and no turn should be lost for one.
const rounding = time.Microsecond

// Slice hands out the tokens of one slice. Times count from its start; a time before the last one counts as the last
// one. It is not safe for concurrent use.
type Slice struct {
	config   Config
	now      time.Duration
	members  []*member // by ID
	sequence uint64
	free     share.PerMille // SMs without a live token
	timetable
}

// New returns a slice without members.
func New(c Config) (*Slice, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Slice{config: c, free: share.Whole}, nil
}

// Join adds a member, without work at first. Under a table it is refused with ErrNoRoom if the members do not fit, and
// has its own turns from the next window on.
func (s *Slice) Join(now time.Duration, m Member) error {
	s.reach(now)
	at, known := s.find(m.ID)
	switch {
	case !m.valid():
		return fmt.Errorf("member %d asks for %v SM, %v to %v of the window", m.ID, m.SM, m.QuotaRequest, m.QuotaLimit)
	case known:
		return fmt.Errorf("member %d: %w", m.ID, ErrKnown)
	}
	members := slices.Insert(slices.Clone(s.members), at, s.newMember(m))
	if s.config.Policy == Table && !s.timetable.change(s.config, members) {
		return fmt.Errorf("member %d: %w", m.ID, ErrNoRoom)
	}
	s.members = members
	return nil
}

func (s *Slice) newMember(m Member) *member {
	n := &member{Member: m, settled: s.now}
	n.from = &n.own
	n.own = ledger{window: s.config.Window, budget: s.config.part(m.QuotaLimit)}
	n.lent.window = s.config.Window
	if s.config.Policy == Table {
		n.own.budget = s.config.part(m.QuotaRequest) + rounding
		n.lent.budget = s.config.part(m.QuotaLimit - m.QuotaRequest)
	}
	return n
}

// Leave removes a member. Its SMs are free at once, for the next Advance to hand out; no Revoke follows.
func (s *Slice) Leave(now time.Duration, id ID) error {
	s.reach(now)
	at, known := s.find(id)
	if !known {
		return fmt.Errorf("member %d: %w", id, ErrUnknown)
	}
	gone := s.members[at]
	s.stop(gone)
	gone.want = false
	s.members = slices.Delete(slices.Clone(s.members), at, at+1)
	if s.config.Policy == Table {
		s.timetable.change(s.config, s.members) // failing that, the old table goes on without the member
	}
	return nil
}

func (s *Slice) reach(now time.Duration) { s.now = min(max(s.now, now), horizon) }

func (s *Slice) find(id ID) (int, bool) {
	return slices.BinarySearchFunc(s.members, id, func(m *member, id ID) int { return cmp.Compare(m.ID, id) })
}

// stop ends the member's token, if it has one.
func (s *Slice) stop(m *member) {
	if m.live {
		m.end(s.now)
		s.free += m.SM
	}
}
