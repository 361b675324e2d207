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

// OpenWork is how much launched work of a share is unfinished, as its processes report it.
type OpenWork int

// The amounts of unfinished work.
const (
	// NoWork means that the device has completed all launched work.
	NoWork OpenWork = iota
	// ShortWork is at most the work that a process may launch ahead.
	ShortWork
	// LongWork is more than that, or of unknown length: a long kernel or CUDA graph.
	LongWork
)

const (
	// contentionMemory is how long after another share last had work a share must still repay debt of more than a window. A share that
	// has been alone for longer disturbs nobody.
	contentionMemory = time.Second
	// overrunTolerance is the time that may pass from the end of open work until it is reported. It is allowed once for each token.
	overrunTolerance = 10 * time.Millisecond
	// maxOverrun is how long the SMs of an ended token stay unavailable to others because its work is unfinished. It is longer than any
	// sensible kernel. A share that reports unfinished work for longer may be lying, and others may then start beside it.
	maxOverrun = 5 * time.Second
)

// overrunState is the state of work that a share launched under a token and that was unfinished when the token ended. A running kernel
// cannot be stopped, so its SMs remain occupied, and shares that do not fit beside it get no tokens. The share that caused this repays the
// time (member.debt), and others make up for the turns that they lost (member.makeUp).
type overrunState struct {
	open       OpenWork
	openSince  time.Duration // when open work began to count as overrun: the end of its token, or of other overruns that kept it from running
	overruns   bool          // its open work occupies SMs without a token
	distrusted bool          // its work has been open for longer than maxOverrun
	claimed    time.Duration // time for which its open work occupied SMs without a token since the latest settlement
	tolerance  time.Duration // rest of overrunTolerance
	lastWanted time.Duration // when it last had work

	makeUp   account       // budget: own time lost to overruns of others, see waitingToMakeUp
	longEnd  time.Duration // when its open work was last seen to overrun a token by more than a turn
	delayEnd time.Duration // when the time for which others have delayed it last grew by another turn
	reported time.Duration // value of delayed at that time

	overran time.Duration // total time for which it occupied SMs without a token while others wanted the device
	delayed time.Duration // total own time that passed while overruns of others occupied its SMs
}

// ReportOpenWork records how much launched work of a share is unfinished.
func (s *Slice) ReportOpenWork(now time.Duration, id ID, open OpenWork) error {
	return s.update(now, id, func(m *member) {
		m.open = open
		if open == NoWork {
			m.distrusted = false
			s.endOverrun(m)
		}
	})
}

// Overruns are the totals of a share since it joined its slice.
type Overruns struct {
	Caused   time.Duration // time beyond its tokens for which its work occupied SMs while other shares wanted the device
	Suffered time.Duration // time of its own turns in which the work of other shares occupied its SMs
	Debt     time.Duration // part of Caused that it has not repaid yet
	Long     bool          // in the last minute, its work overran a token by more than a turn
	Delayed  bool          // in the last minute, the work of others delayed it by a turn
}

// overrunMemory is how long Overruns reports a long overrun or a long delay.
const overrunMemory = time.Minute

// Overruns returns for how long a share overran its tokens and was delayed by others that overran theirs.
func (s *Slice) Overruns(id ID) Overruns {
	at, known := s.members.find(id)
	if !known {
		return Overruns{}
	}
	m := s.members[at]
	recent := func(end time.Duration) bool { return end > 0 && s.now-end < overrunMemory }
	return Overruns{Caused: m.overran, Suffered: m.delayed, Debt: m.owed(), Long: recent(m.longEnd), Delayed: recent(m.delayEnd)}
}

// elapse accounts for the time from s.now until now, in which no state changed.
func (s *Slice) elapse(now time.Duration) {
	d := now - s.now
	if d == 0 {
		return
	}
	for _, m := range s.members {
		if m.hasWork {
			m.lastWanted = now
		}
		contended, blocked := s.members.isContended(m, s.now), s.members.isBlocked(m)
		if m.overruns && !m.ownsAllTime {
			m.overran += d
			m.claimed += d
			if now-m.openSince > s.config.Turn {
				m.longEnd = now
			}
		}
		if m.waitsForDebt() && !m.live && !m.overruns {
			m.debt -= min(m.debt, d)
		}
		own, lost := time.Duration(0), time.Duration(0)
		if !m.live {
			own = s.issuer.ownTime(m, s.now, now)
			lost = m.passOwnTime(s.now, own)
		}
		if !blocked {
			m.addReportable(d, s.config.Window, m.live || contended && m.open != NoWork)
			continue
		}
		m.openSince = now
		if m.isWaiting() {
			m.delayed += own
			if m.delayed-m.reported > s.config.Turn {
				m.delayEnd, m.reported = now, m.delayed
			}
			m.makeUp.budget += lost
		}
	}
}

// addReportable increases the device time that the share may report by d: without a bound if the share holds a token or delays others,
// otherwise up to a window.
func (m *member) addReportable(d, window time.Duration, unbounded bool) {
	if unbounded {
		m.reportable += d
	} else if m.reportable < window {
		m.reportable = min(window, m.reportable+d)
	}
}

// isContended reports whether another share has work for the device, or had some lately.
func (list members) isContended(m *member, now time.Duration) bool {
	return slices.ContainsFunc(list, func(o *member) bool {
		return o != m && (o.hasWork || now-o.lastWanted < contentionMemory)
	})
}

// isBlocked reports whether overruns of others leave a share without enough SMs, beside those of shares with the whole quota.
func (list members) isBlocked(m *member) bool {
	sm, overrun := m.SM, false
	for _, o := range list {
		if o != m && (o.overruns || o.live && o.ownsAllTime) {
			sm, overrun = sm+o.SM, overrun || o.overruns
		}
	}
	return overrun && !m.overruns && !m.live && sm > share.Whole
}

// updateOverruns finds the shares whose unfinished work occupies SMs without a token while other shares want the device. Short work counts
// only a turn after its token: its length was then estimated wrongly. Tokens of shares that cannot run beside such work end.
func (s *Slice) updateOverruns() {
	for _, m := range s.members {
		contended := s.members.isContended(m, s.now)
		if !contended {
			m.debt = min(m.debt, s.config.Window)
		}
		if s.now-m.lastWanted >= contentionMemory {
			m.makeUp.clear()
		}
		begins := contended && s.now >= m.overrunStart(s.config.Turn) && !s.members.isBlocked(m)
		switch {
		case (m.overruns || begins) && s.now-m.openSince >= maxOverrun:
			m.distrusted = true
			s.endOverrun(m)
		case m.overruns && !contended:
			s.endOverrun(m)
		case begins:
			m.overruns = true
			s.free -= m.SM
			for s.free < 0 {
				latest := s.members.latestToken()
				if latest == nil {
					break // several shares overrun their tokens, which ended at different times
				}
				s.endToken(latest)
			}
		}
	}
}

// overrunStart returns when the open work of a share begins to count as an overrun, or Never.
func (m *member) overrunStart(turn time.Duration) time.Duration {
	switch {
	case m.overruns || m.live || m.distrusted || m.open == NoWork:
		return Never
	case m.open == LongWork:
		return m.openSince
	}
	return m.openSince + turn
}

// nextOverrunChange returns when an overrun of the share begins or is no longer believed, or Never.
func (m *member) nextOverrunChange(now, turn time.Duration) time.Duration {
	if m.overruns {
		return m.openSince + maxOverrun
	}
	if start := m.overrunStart(turn); start > now {
		return start
	}
	return Never
}

// latestToken returns the share whose token was granted last, or nil if there is no token that an overrun may end. Those of shares with the
// whole quota go on: their SMs are not the ones that are missing.
func (list members) latestToken() (latest *member) {
	for _, m := range list {
		if m.live && !m.ownsAllTime && (latest == nil || m.token.Sequence > latest.token.Sequence) {
			latest = m
		}
	}
	return latest
}

// endOverrun makes the SMs of an overrun available.
func (s *Slice) endOverrun(m *member) {
	if m.overruns {
		m.overruns = false
		s.free += m.SM
	}
}

// newMakeUpAccount returns an account without a budget whose use never expires.
func newMakeUpAccount() account { return account{window: math.MaxInt64 / 4} }

// clear removes the budget and the use of an account.
func (l *account) clear() { l.budget, l.intervals = 0, l.intervals[:0] }

// waitingToMakeUp returns the candidates for tokens, until the given times, that make up for time lost to overruns of others, the largest
// loss first. Such tokens may exceed the quota limit in a window, but not over the whole time.
func waitingToMakeUp(s *Slice, until func(*member) time.Duration) (list []candidate) {
	for _, m := range s.members {
		if m.account != &m.makeUp && len(m.makeUp.intervals) > 0 {
			m.makeUp.budget -= m.makeUp.used(math.MinInt64)
			m.makeUp.intervals = nil
		}
		if c, ok := s.candidateFor(m, &m.makeUp, until(m)); ok && m.isWaiting() && c.canPayDebt() {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int { return int(b.makeUp.budget - a.makeUp.budget) })
	return list
}
