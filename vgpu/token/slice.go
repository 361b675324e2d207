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
	ErrUnknown    = errors.New("no such share")
	ErrKnown      = errors.New("a share with this ID exists already")
	ErrDoesNotFit = errors.New("the shares do not fit into the window")
)

// Never is a time later than all others. Advance returns it if no further call is needed until the next event.
const Never = time.Duration(math.MaxInt64)

// maxTime is the latest time that a slice accepts, 146 years, so that sums of times cannot overflow.
const maxTime = Never / 2

// roundingTolerance is how much the time used in a share's own turns may exceed its quota request in a window. Turns are whole nanoseconds
// and may each be one too long; without a tolerance the share would lose a turn for that.
const roundingTolerance = time.Microsecond

// Slice issues time tokens, the right to launch kernels until a deadline, to the shares of one slice. Times count from its start, and a
// time before the latest one counts as the latest one. It has a method for each event and each question of the token server. It is not safe for
// concurrent use.
type Slice struct {
	config   Config
	issuer   tokenIssuer
	now      time.Duration
	members  members
	sequence uint64
	free     share.PerMille // SMs without a live token or an overrun
}

// New returns a Slice without shares.
func New(c Config) (*Slice, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Slice{config: c, issuer: c.Policy.newIssuer(c), free: share.Whole}, nil
}

// Join adds a share, at first without work. With policy Table it returns ErrDoesNotFit if no slot table holds all shares; otherwise the new
// share has turns from the next window on.
func (s *Slice) Join(now time.Duration, m Member) error {
	s.advanceTo(now)
	at, known := s.members.find(m.ID)
	switch {
	case !m.valid():
		return fmt.Errorf("share %d: invalid request of %v of the SMs, %v to %v of the window", m.ID, m.SM, m.QuotaRequest, m.QuotaLimit)
	case known:
		return fmt.Errorf("share %d: %w", m.ID, ErrKnown)
	}
	members := slices.Insert(slices.Clone(s.members), at, newMember(s, m))
	if !s.issuer.plan(members) {
		return fmt.Errorf("share %d: %w", m.ID, ErrDoesNotFit)
	}
	s.members = members
	return nil
}

func newMember(s *Slice, m Member) *member {
	n := &member{Member: m, overrunState: overrunState{makeUp: newMakeUpAccount(), lastWanted: s.now - contentionMemory}}
	n.account = &n.own
	n.own.window, n.borrowed.window = s.config.Window, s.config.Window
	n.own.budget, n.borrowed.budget = s.issuer.budgets(m)
	return n
}

// OwnStart returns a time, modulo the window, at which the share's own time begins in every window, and false if it has no fixed position there.
func (s *Slice) OwnStart(id ID) (time.Duration, bool) {
	at, known := s.members.find(id)
	if !known {
		return 0, false
	}
	return s.issuer.ownStart(s.members[at])
}

// Leave removes a share. Advance may then grant its SMs to others; no Revoke is returned for its token.
func (s *Slice) Leave(now time.Duration, id ID) error {
	return s.update(now, id, func(m *member) {
		s.endToken(m)
		s.endOverrun(m)
		m.hasWork = false
		s.members = slices.DeleteFunc(slices.Clone(s.members), func(other *member) bool { return other == m })
		s.issuer.plan(s.members) // if there is no table for them, the old one continues without the member
	})
}

// Reshape changes the quota request and limit of a share. Its token ends, and what it owes or is owed is forgotten. With policy Table it
// returns ErrDoesNotFit if no slot table holds all shares; otherwise a share that had no request has turns from the next window on, and a
// share that no longer has one loses its turns at once.
func (s *Slice) Reshape(now time.Duration, id ID, request, limit share.PerMille) error {
	s.advanceTo(now)
	at, known := s.members.find(id)
	if !known {
		return fmt.Errorf("share %d: %w", id, ErrUnknown)
	}
	m := s.members[at]
	before := m.Member
	m.QuotaRequest, m.QuotaLimit = request, limit
	switch {
	case !m.valid():
		m.Member = before
		return fmt.Errorf("share %d: invalid request of %v to %v of the window", id, request, limit)
	case !s.issuer.plan(s.members) && m.hasRequest():
		m.Member = before
		return fmt.Errorf("share %d: %w", id, ErrDoesNotFit)
	}
	s.endToken(m)
	m.own.budget, m.borrowed.budget = s.issuer.budgets(m.Member)
	if m.account = &m.own; m.own.budget == 0 {
		m.account = &m.borrowed
	}
	m.debt, m.credit, m.ownsAllTime = 0, 0, false
	m.makeUp.clear()
	if !m.hasRequest() {
		s.issuer.disown(m)
	}
	return nil
}

// RequestToken records that a share has work for the device, so that it waits for a token.
func (s *Slice) RequestToken(now time.Duration, id ID) error {
	return s.update(now, id, func(m *member) { m.hasWork = true })
}

// ReleaseToken records that a share has no more work for the device, and ends its token.
func (s *Slice) ReleaseToken(now time.Duration, id ID) error {
	return s.update(now, id, func(m *member) {
		m.hasWork = false
		s.endToken(m)
	})
}

// Settle records how much device time a share used since its last settlement, to correct its account. Kernels that still run may be included
// now or when they end. The time counts up to that in which the share held tokens, or had open work (ReportOpenWork) while others wanted the
// device; without open work, up to a window may be reported late. Without settlements, a share is charged for the whole time for which it
// held tokens. A share with the whole quota is charged for no time beyond its tokens.
func (s *Slice) Settle(now time.Duration, id ID, busy time.Duration) error {
	return s.update(now, id, func(m *member) {
		if m.ownsAllTime {
			busy, m.claimed = min(busy, m.heldUntil(s.now)), 0 // the rest is its own time, too
		}
		s.creditDelayedShares(m, m.settle(s.now, busy, s.config.Window, s.issuer.maxCredit()))
	})
}

// creditDelayedShares compensates shares whose turns began while a kernel that overran the token of share m still occupied their SMs. They
// cannot measure the delay themselves: a kernel that is queued behind another one seems to be running.
func (s *Slice) creditDelayedShares(m *member, overrun time.Duration) {
	if m.live {
		return
	}
	from := m.lastUse
	m.lastUse = min(m.lastUse+overrun, s.now)
	for _, o := range s.members {
		if o.live && o.account == &o.own && o.SM+m.SM > share.Whole {
			lost := m.lastUse - max(from, o.seriesStart)
			o.credit = min(o.credit+max(0, lost), s.config.Window)
		}
	}
}

func (s *Slice) update(now time.Duration, id ID, change func(*member)) error {
	s.advanceTo(now)
	at, known := s.members.find(id)
	if !known {
		return fmt.Errorf("share %d: %w", id, ErrUnknown)
	}
	change(s.members[at])
	return nil
}

func (s *Slice) advanceTo(now time.Duration) {
	now = min(max(s.now, now), maxTime)
	s.elapse(now)
	s.now = now
}

func (list members) find(id ID) (int, bool) {
	return slices.BinarySearchFunc(list, id, func(m *member, id ID) int { return cmp.Compare(m.ID, id) })
}

func (s *Slice) endToken(m *member) {
	if m.live {
		m.endToken(s.now)
		s.free += m.SM
	}
}

// Advance moves the slice to the given time. It returns the changes of tokens since the last call, revocations first, and the time at which
// it must be called again: Never if only an event can change anything.
func (s *Slice) Advance(now time.Duration) (changes []Change, next time.Duration) {
	s.advanceTo(now)
	for _, m := range s.members {
		if m.live && m.token.Deadline <= s.now {
			s.endToken(m)
		}
	}
	if slices.ContainsFunc(s.members, func(m *member) bool { return m.hasWork }) {
		s.issuer.enterTurnAt(s.now)
		grantWholeQuotas(s)
	}
	s.updateOverruns()
	s.issuer.issue(s)
	return s.changes(), s.nextAdvance()
}

// changes returns which shares' tokens were granted, renewed or revoked since the last call.
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

// nextAdvance returns the next time at which a token ends or a waiting share may get one without an event.
func (s *Slice) nextAdvance() time.Duration {
	next := Never
	for _, m := range s.members {
		next = min(next, m.nextOverrunChange(s.now, s.config.Turn))
		switch {
		case m.live:
			next = min(next, m.token.Deadline)
		case m.hasWork && m.waitsForDebt():
			next = min(next, s.now+m.debt)
		case m.hasWork:
			next = min(next, s.earliestToken(m))
		}
	}
	return next
}

// earliestToken returns the next time at which the accounts and turns of a waiting share allow a token. It ignores whether SMs are free,
// since those become free at the deadlines of other tokens.
func (s *Slice) earliestToken(m *member) time.Duration {
	next := s.issuer.nextTurn()
	for _, l := range []*account{&m.own, &m.borrowed} {
		if l == &m.own && !s.issuer.canUseOwnTime(m) || l == &m.borrowed && l.budget <= 0 {
			continue
		}
		if at := m.earliestStart(l, s.minTokenLength(m, l)); at > s.now {
			next = min(next, at)
		}
	}
	return next
}
