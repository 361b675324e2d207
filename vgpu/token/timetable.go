package token

import "time"

// timetable is the slot table that runs, and where it is. The turns have the same place in every window, so that any
// second, wherever it begins, holds the whole time of every turn.
type timetable struct {
	turns  []turn
	next   []turn // takes over with the next window; nil if nothing changes
	origin time.Duration
	end    time.Duration // of the turn that was entered last
}

// change makes a table for the members, or says that there is none.
func (t *timetable) change(c Config, members []*member) bool {
	next, ok := plan(c, members)
	if ok {
		t.next = next
	}
	return ok
}

// advance enters the turn of the given time, if it is not there yet.
func (t *timetable) advance(now time.Duration, c Config) {
	if len(t.turns) == 0 {
		t.origin = now // nothing runs: begin at once
		t.adopt(c)
	} else if now >= t.origin+c.Window {
		t.origin += (now - t.origin) / c.Window * c.Window
		t.adopt(c)
	}
	for k := range t.turns {
		if x := &t.turns[k]; now < t.origin+x.end {
			t.enter(x, c)
			return
		}
	}
}

// adopt begins a window. If the table has changed, what the old one gave counts for one window, or members that were
// late in the old and are early in the new table would pass their limits. From then on the turns themselves keep every
// window within the requests, unless all members run at once and need no turns.
func (t *timetable) adopt(c Config) {
	changed := t.next != nil
	if changed {
		t.leave()
		t.turns, t.next = t.next, nil
	}
	for _, x := range t.turns {
		for _, o := range x.owners {
			o.own.budget = c.part(o.QuotaRequest) + rounding
			if !changed && len(t.turns) > 1 {
				o.own.budget = c.Window
			}
		}
	}
}

// leave takes the turn from those that own it.
func (t *timetable) leave() {
	for _, x := range t.turns {
		for _, o := range x.owners {
			o.owner = false
		}
	}
}

// enter makes the owners of the turn known. Those that go on from the turn before keep the end of their time.
func (t *timetable) enter(x *turn, c Config) {
	start, end := t.origin+x.start, t.origin+x.end
	if end == t.end {
		return
	}
	follows := start == t.end
	for _, o := range x.owners {
		if o.first || !o.owner || !follows {
			o.begin(start, t.origin+o.end, c)
		}
	}
	t.leave()
	for _, o := range x.owners {
		o.owner = true
	}
	t.end = end
}

// begin gives the member its own time in turns on end. Debt is paid from it; who owes more than that sits out, and pays
// with what its account would have let it use. What it could not use of the turns before is kept up to a floor, or one
// window would be too full.
func (m *member) begin(start, end time.Duration, c Config) {
	m.credit = min(m.credit, c.Floor)
	turn := min(max(0, end-start), m.own.budget)
	m.until = end
	if m.debt < turn {
		return
	}
	paid := min(turn, m.own.room(start))
	m.own.charge(start, paid)
	m.debt -= paid
	m.until = start
}
