package token

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// tablePolicy implements the policy Table: it executes the slot table once a window.
type tablePolicy struct{}

func (tablePolicy) String() string { return "table" }

func (tablePolicy) newIssuer(c Config) issuer { return &timetable{config: c} }

// timetable executes slot tables on one slice. The turns have the same position in every window, so that any second contains the whole
// time of every turn, whenever it begins.
type timetable struct {
	config  Config
	turns   []turn
	next    []turn // replaces turns in the next window; nil if nothing changes
	origin  time.Duration
	turnEnd time.Duration // end of the latest turn entered
}

func (t *timetable) plan(members []*member) bool {
	next, ok := planTurns(t.config, members)
	if ok {
		t.next = next
	}
	return ok
}

func (t *timetable) budgets(m Member) (own, borrowed time.Duration) {
	return t.config.part(m.QuotaRequest) + rounding, t.config.part(m.QuotaLimit - m.QuotaRequest)
}

func (t *timetable) maxCredit() time.Duration { return t.config.Window }
func (t *timetable) ownTime(m *member) bool   { return m.owner }
func (t *timetable) nextTurn() time.Duration  { return t.turnEnd }

func (t *timetable) issue(s *Slice) {
	if !slices.ContainsFunc(s.members, func(m *member) bool { return m.hasWork }) {
		return
	}
	t.advance(s.now)
	s.fill(t.owners(s), untilStart)
	s.fill(t.borrowers(s), untilStart)
}

// untilStart is a barrier at the start itself: tokens end before the member that waits for SMs can start.
func untilStart(start time.Duration) time.Duration { return start }

// owners returns the members that wait in a turn of their own.
func (t *timetable) owners(s *Slice) []candidate {
	var list []candidate
	for _, m := range s.members {
		if c, ok := s.candidate(m, &m.own, m.ownUntil+m.credit-m.debt); ok && m.owner && m.waiting() && c.affordable() {
			c.until = min(c.until, t.turnEnd) // renewed in the next turn
			c.shortest = min(c.shortest, c.until-s.now)
			list = append(list, c)
		}
	}
	return list
}

// borrowers returns the members that wait outside their own turns and are below their limits, in the order of their backlogs. They use
// SMs that the owners of the turn leave idle, until the turn ends; or, if the SMs do not suffice for both, until an owner that waits
// for its account can start.
func (t *timetable) borrowers(s *Slice) []candidate {
	var list []candidate
	start, claimed := t.claims(s)
	for _, m := range s.members {
		until := t.turnEnd - m.debt // an overrun has to end within the turn, too
		if m.SM > s.free-claimed {
			until = min(until, start)
		}
		if c, ok := s.candidate(m, &m.borrowed, until); ok && m.waiting() && c.affordable() {
			list = append(list, c)
		}
	}
	return s.sorted(list, byRelativeBacklog)
}

// claims returns the SMs of the owners that wait for their accounts, and when the first of them can start.
func (t *timetable) claims(s *Slice) (start time.Duration, sm share.PerMille) {
	start = Never
	for _, m := range s.members {
		if !m.owner || !m.waiting() {
			continue
		}
		if at := m.start(&m.own, s.shortest(m, &m.own)); at > s.now && at < min(m.ownUntil, t.turnEnd) {
			start, sm = min(start, at), sm+m.SM
		}
	}
	return start, sm
}

// affordable reports whether the account can pay for the whole debt too. Otherwise the member skips turns.
func (c candidate) affordable() bool { return c.shortest+c.debt <= c.payer.budget }

// advance enters the turn of the given time, unless it has been entered.
func (t *timetable) advance(now time.Duration) {
	if len(t.turns) == 0 {
		t.origin = now // the first table begins at once
		t.beginWindow()
	} else if now >= t.origin+t.config.Window {
		t.origin += (now - t.origin) / t.config.Window * t.config.Window
		t.beginWindow()
	}
	for k := range t.turns {
		if x := &t.turns[k]; now < t.origin+x.end {
			t.enter(x)
			return
		}
	}
}

// beginWindow switches to the next table, if there is one. For one window after a change, accounts limit members to their requests:
// members that were late in the old table and are early in the new one would exceed their limits. From then on the turns themselves
// keep every window within the requests, unless all members run at once and need no turns.
func (t *timetable) beginWindow() {
	changed := t.next != nil
	if changed {
		t.clearOwners()
		t.turns, t.next = t.next, nil
	}
	for _, x := range t.turns {
		for _, o := range x.owners {
			o.own.budget = t.config.part(o.QuotaRequest) + rounding
			if !changed && len(t.turns) > 1 {
				o.own.budget = t.config.Window
			}
		}
	}
}

func (t *timetable) clearOwners() {
	for _, x := range t.turns {
		for _, o := range x.owners {
			o.owner = false
		}
	}
}

// enter makes the turn's members its owners. Those that were owners of the turn before keep the end of their own time.
func (t *timetable) enter(x *turn) {
	start, end := t.origin+x.start, t.origin+x.end
	if end == t.turnEnd {
		return
	}
	follows := start == t.turnEnd
	for _, o := range x.owners {
		if o.first || !o.owner || !follows {
			o.beginTurns(start, t.origin+o.end, t.config.Floor)
		}
	}
	t.clearOwners()
	for _, o := range x.owners {
		o.owner = true
	}
	t.turnEnd = end
}
