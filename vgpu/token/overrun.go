package token

import (
	"math"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

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
	// overrunTolerance is the time that may pass from the end of open work until it is reported.
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
