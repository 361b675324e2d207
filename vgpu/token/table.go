package token

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// tablePolicy is the Policy that executes a slot table once per window.
type tablePolicy struct{}

func (tablePolicy) String() string { return "table" }

func (tablePolicy) newIssuer(c Config) tokenIssuer { return &tableIssuer{config: c} }

// tableIssuer issues the tokens of one slice by a slot table. The turns have the same position in every window, so that any second contains
// the whole time of every turn, whenever it begins.
type tableIssuer struct {
	config  Config
	turns   []windowTurn
	next    []windowTurn // replaces turns in the next window; nil if nothing changes
	origin  time.Duration
	turnEnd time.Duration // end of the latest turn entered
}

func (t *tableIssuer) plan(members []*member) bool {
	next, ok := planTurns(t.config, members)
	if ok {
		t.next = next
	}
	return ok
}

func (t *tableIssuer) disown(m *member) {
	m.owner = false
	for _, turns := range [][]windowTurn{t.turns, t.next} {
		for k := range turns {
			turns[k].owners = slices.DeleteFunc(turns[k].owners, func(o turnOwner) bool { return o.member == m })
		}
	}
}

func (t *tableIssuer) budgets(m Member) (own, borrowed time.Duration) {
	if !m.hasRequest() {
		return 0, t.config.windowFraction(m.QuotaLimit)
	}
	return t.config.windowFraction(m.QuotaRequest) + roundingTolerance, t.config.windowFraction(m.QuotaLimit - m.QuotaRequest)
}

func (t *tableIssuer) maxCredit() time.Duration     { return t.config.Window }
func (t *tableIssuer) canUseOwnTime(m *member) bool { return m.owner }
func (t *tableIssuer) nextTurn() time.Duration      { return t.turnEnd }

func (t *tableIssuer) ownTime(m *member, from, to time.Duration) time.Duration {
	if !m.owner {
		return 0
	}
	return max(0, min(to, m.ownUntil)-from)
}

// ownStart returns the start of the first series of the share's turns, modulo the window: a time at which it begins in every window.
func (t *tableIssuer) ownStart(m *member) (time.Duration, bool) {
	for _, x := range t.turns {
		for _, o := range x.owners {
			if o.member == m && o.first {
				return (t.origin + x.start) % t.config.Window, true
			}
		}
	}
	return 0, false
}

func (t *tableIssuer) issue(s *Slice) {
	s.grantInOrder(t.waitingOwners(s), barrierAtStart)
	s.grantInOrder(waitingToMakeUp(s, t.lendableUntil(s)), barrierAtStart)
	s.grantInOrder(t.waitingBorrowers(s), barrierAtStart)
}

// barrierAtStart is a barrier for grantInOrder: while a share waits for SMs, others get only tokens that end before it can start.
func barrierAtStart(start time.Duration) time.Duration { return start }

// waitingOwners returns the candidates for tokens in their own turns: shares to which the slot table assigns the present turn.
func (t *tableIssuer) waitingOwners(s *Slice) []candidate {
	var list []candidate
	for _, m := range s.members {
		if c, ok := s.candidateFor(m, &m.own, m.ownUntil+m.credit-m.owed()); ok && m.owner && m.isWaiting() && c.canPayDebt() {
			c.until = min(c.until, t.turnEnd) // renewed in the next turn
			c.minLength = min(c.minLength, c.until-s.now)
			list = append(list, c)
		}
	}
	return list
}

// waitingBorrowers returns the candidates for tokens in turns of others: waiting shares below their quota limits, in the order of their
// backlogs. They use SMs that the owners of the turn leave idle, until the turn ends, or until an owner that has used up its account can
// start again and needs them.
func (t *tableIssuer) waitingBorrowers(s *Slice) []candidate {
	var list []candidate
	until := t.lendableUntil(s)
	for _, m := range s.members {
		if c, ok := s.candidateFor(m, &m.borrowed, until(m)); ok && m.isWaiting() && c.canPayDebt() {
			list = append(list, c)
		}
	}
	return s.sort(list, By(byRelativeBacklog)())
}

// lendableUntil returns a function that computes until when a share may use idle SMs of the present turn. The debt that it repays shortens
// that, so that its overruns end within the turn, too. A share without a request gets the SMs for Config.Turn at a time, since the turn
// beside which it runs may be the whole window.
func (t *tableIssuer) lendableUntil(s *Slice) func(*member) time.Duration {
	start, claimed := t.claimedSMs(s)
	return func(m *member) time.Duration {
		if !m.hasRequest() {
			return min(s.now+t.config.Turn, t.turnEnd, start)
		}
		if m.SM > s.free-claimed {
			return min(t.turnEnd-m.owed(), start)
		}
		return t.turnEnd - m.owed()
	}
}

// claimedSMs returns the SMs of the shares that own the present turn but whose accounts allow no token yet, and the time when the first of
// them can start.
func (t *tableIssuer) claimedSMs(s *Slice) (start time.Duration, sm share.PerMille) {
	start = Never
	for _, m := range s.members {
		if !m.owner || !m.isWaiting() {
			continue
		}
		if at := m.earliestStart(&m.own, s.minTokenLength(m, &m.own)); at > s.now && at < min(m.ownUntil, t.turnEnd) {
			start, sm = min(start, at), sm+m.SM
		}
	}
	return start, sm
}

// canPayDebt reports whether the candidate's account can pay for its whole debt (device time used beyond its tokens) besides the shortest
// token. If not, the share waits until its own time has repaid some.
func (c candidate) canPayDebt() bool { return c.minLength+c.owed() <= c.account.budget }

// enterTurnAt enters the turn that contains the given time, unless it has been entered already.
func (t *tableIssuer) enterTurnAt(now time.Duration) {
	if len(t.turns) == 0 {
		t.origin = now // the first table begins at once
		t.beginWindow()
	} else if now >= t.origin+t.config.Window {
		t.origin += (now - t.origin) / t.config.Window * t.config.Window
		t.beginWindow()
	}
	for k := range t.turns {
		if x := &t.turns[k]; now < t.origin+x.end {
			t.enterTurn(x)
			return
		}
	}
}

// beginWindow starts a window, with a new slot table if there is one. In the first window after a change, accounts limit shares to their
// requests: a share whose turn was late in the old table and is early in the new one would otherwise exceed its limit. After that the turns
// themselves keep every window within the requests, unless all shares run at once and need no turns.
func (t *tableIssuer) beginWindow() {
	changed := t.next != nil
	if changed {
		t.clearOwners()
		t.turns, t.next = t.next, nil
	}
	for _, x := range t.turns {
		for _, o := range x.owners {
			o.own.budget = t.config.windowFraction(o.QuotaRequest) + roundingTolerance
			if !changed && len(t.turns) > 1 {
				o.own.budget = t.config.Window
			}
		}
	}
}

func (t *tableIssuer) clearOwners() {
	for _, x := range t.turns {
		for _, o := range x.owners {
			o.owner = false
		}
	}
}

// enterTurn makes the shares of a turn its owners. A share that also owned the turn before continues its series of turns.
func (t *tableIssuer) enterTurn(x *windowTurn) {
	start, end := t.origin+x.start, t.origin+x.end
	if end == t.turnEnd {
		return
	}
	follows := start == t.turnEnd
	for _, o := range x.owners {
		if o.first || !o.owner || !follows {
			o.startOwnTime(t.origin+o.end, t.config.Floor)
		}
	}
	t.clearOwners()
	for _, o := range x.owners {
		o.owner = true
	}
	t.turnEnd = end
}
