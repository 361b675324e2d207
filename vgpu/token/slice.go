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
	ErrUnknown    = errors.New("no such member")
	ErrKnown      = errors.New("a member of this ID exists already")
	ErrDoesNotFit = errors.New("the members do not fit into the window")
)

// Never is a time later than all others.
const Never = time.Duration(math.MaxInt64)

// horizon is the latest time that a slice accepts, so that sums of times cannot overflow. It is 146 years.
const horizon = Never / 2

// rounding is how much the use of own time may exceed the request in a window. Turns are whole nanoseconds and may each be one too
// long, and no turn should be lost for that.
const rounding = time.Microsecond

// Slice issues the time tokens of one slice. Times count from its start; a time before the latest one counts as the latest one. It is
// not safe for concurrent use.
type Slice struct {
	config   Config
	issuer   issuer
	now      time.Duration
	members  []*member // in the order of their IDs
	sequence uint64
	free     share.PerMille // SMs without a live token
}

// New returns a slice without members.
func New(c Config) (*Slice, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Slice{config: c, issuer: c.Policy.newIssuer(c), free: share.Whole}, nil
}

// Join adds a member, at first without work. Under Table it returns ErrDoesNotFit if the members have no slot table; otherwise the
// member has its own turns from the next window on.
func (s *Slice) Join(now time.Duration, m Member) error {
	s.advanceTo(now)
	at, known := s.find(m.ID)
	switch {
	case !m.valid():
		return fmt.Errorf("member %d: invalid share of %v of the SMs, %v to %v of the window", m.ID, m.SM, m.QuotaRequest, m.QuotaLimit)
	case known:
		return fmt.Errorf("member %d: %w", m.ID, ErrKnown)
	}
	members := slices.Insert(slices.Clone(s.members), at, s.newMember(m))
	if !s.issuer.plan(members) {
		return fmt.Errorf("member %d: %w", m.ID, ErrDoesNotFit)
	}
	s.members = members
	return nil
}

func (s *Slice) newMember(m Member) *member {
	n := &member{Member: m, measurement: measurement{lastSettled: s.now}}
	n.payer = &n.own
	n.own.window, n.borrowed.window = s.config.Window, s.config.Window
	n.own.budget, n.borrowed.budget = s.issuer.budgets(m)
	return n
}

// Leave removes a member. Its SMs are free for the next Advance; no Revoke follows.
func (s *Slice) Leave(now time.Duration, id ID) error {
	return s.update(now, id, func(m *member) {
		s.stop(m)
		m.hasWork = false
		s.members = slices.DeleteFunc(slices.Clone(s.members), func(other *member) bool { return other == m })
		s.issuer.plan(s.members) // if there is no table for them, the old one continues without the member
	})
}

// Want records that a member has work, so that it waits for a token.
func (s *Slice) Want(now time.Duration, id ID) error {
	return s.update(now, id, func(m *member) { m.hasWork = true })
}

// Idle records that a member has no work, and ends its token.
func (s *Slice) Idle(now time.Duration, id ID) error {
	return s.update(now, id, func(m *member) {
		m.hasWork = false
		s.stop(m)
	})
}

// Settle records how much device time a member used since its last settlement. Kernels that still run may be included now or when they
// end. At most the time that passed without a report counts, up to one window. A settlement may follow the end of a token or never
// come; until then the time for which tokens were held is charged.
func (s *Slice) Settle(now time.Duration, id ID, busy time.Duration) error {
	return s.update(now, id, func(m *member) {
		s.compensate(m, m.settle(s.now, busy, s.config.Window, s.issuer.maxCredit()))
	})
}

// compensate credits the members whose own time began while a kernel that overran m's token still occupied their SMs. They cannot
// measure that themselves: to them, a kernel that is queued behind another one runs.
func (s *Slice) compensate(m *member, overrun time.Duration) {
	if m.live {
		return
	}
	from := m.lastUse
	m.lastUse = min(m.lastUse+overrun, s.now)
	for _, o := range s.members {
		if o.live && o.payer == &o.own && o.SM+m.SM > share.Whole {
			lost := m.lastUse - max(from, o.seriesStart)
			o.credit = min(o.credit+max(0, lost), s.config.Window)
		}
	}
}

func (s *Slice) update(now time.Duration, id ID, change func(*member)) error {
	s.advanceTo(now)
	at, known := s.find(id)
	if !known {
		return fmt.Errorf("member %d: %w", id, ErrUnknown)
	}
	change(s.members[at])
	return nil
}

func (s *Slice) advanceTo(now time.Duration) { s.now = min(max(s.now, now), horizon) }

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

// Advance brings the slice to the given time and returns the changes for its members, revocations first, and the time at which it must
// be called again: Never if only an event can change anything.
func (s *Slice) Advance(now time.Duration) (changes []Change, next time.Duration) {
	s.advanceTo(now)
	for _, m := range s.members {
		if m.live && m.token.Deadline <= s.now {
			s.stop(m)
		}
	}
	s.issuer.issue(s)
	return s.changes(), s.nextAdvance()
}

// changes returns the differences between the tokens announced so far and the present ones.
func (s *Slice) changes() []Change {
	var list []Change
	for _, m := range s.members {
		switch {
		case m.announced && !m.live:
			list = append(list, Change{m.ID, Revoke, m.token})
		case m.live && !m.announced:
			list = append(list, Change{m.ID, Grant, m.token})
		case m.live && m.token.Sequence != m.announcedSequence:
			list = append(list, Change{m.ID, Renew, m.token})
		}
		m.announced, m.announcedSequence = m.live, m.token.Sequence
	}
	slices.SortStableFunc(list, func(a, b Change) int { return -cmp.Compare(a.Kind, b.Kind) })
	return list
}

// nextAdvance returns the next time at which something changes without an event.
func (s *Slice) nextAdvance() time.Duration {
	next := Never
	for _, m := range s.members {
		switch {
		case m.live:
			next = min(next, m.token.Deadline)
		case m.hasWork:
			next = min(next, s.nextChance(m))
		}
	}
	return next
}

// nextChance returns the next time at which a waiting member's accounts and turns allow a token. If it only lacks SMs, that is the
// deadline of another member's token instead.
func (s *Slice) nextChance(m *member) time.Duration {
	next := s.issuer.nextTurn()
	for _, l := range []*ledger{&m.own, &m.borrowed} {
		if l == &m.own && !s.issuer.ownTime(m) || l == &m.borrowed && l.budget <= 0 {
			continue
		}
		if at := m.start(l, s.shortest(m, l)); at > s.now {
			next = min(next, at)
		}
	}
	return next
}
