package rckm

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Bounds of what a share is owed, in ticks of its request.
const (
	owedTicks    = 2000 // the most that it can be owed
	surplusTicks = 20   // the most that it can have got beyond its request; earlier surplus is forgotten
	patientTicks = 100  // what a best-effort share must be owed before others are stopped for it
)

// Ticks of device time of a share without neighbours from which it is known how long its blocks take.
const (
	leastMeasured = 4
	mostMeasured  = 80 // beyond this, earlier ticks lose half of their weight
)

// deviceTime is a part of a slice's device time: nanoseconds times per mille of the SMs.
type deviceTime int64

func deviceTimeOf(d time.Duration, p share.PerMille) deviceTime { return deviceTime(d) * deviceTime(p) }

// timeAccount compares the device time that a share gets with its request. The device time that processes report includes time in which
// their work waits behind that of neighbours. So it shows when the share wanted the device, but not how much of it the share got; beside
// neighbours, that is estimated from the launched blocks. Its fields are one account: each tick, all of them follow from one another.
type timeAccount struct {
	owed      deviceTime    // what the request is worth while the share wanted the device, less what it got; negative if it got more
	launched  deviceTime    // estimated device time of launched blocks that does not yet count as got
	wanted    time.Duration // how long it wanted the device in the latest ticks
	used      time.Duration // how much of that time it used the device, assuming that nobody else did
	reported  time.Duration // reported device time less what has been counted as used; negative while a long kernel runs
	waits     bool          // it wanted the device in the latest ticks, and had no tokens for it
	busy      bool          // launched work was unfinished at the end of the last tick
	idle      int64         // ticks since it last used or wanted the device
	alone     int64         // ticks since a neighbour was active
	disturbed bool          // a neighbour was active in the latest ticks, and it is not yet known how long the share's blocks take

	blocks  int64         // blocks that it launched without active neighbours,
	took    time.Duration // and how long they took; old ones weigh less
	tries   int64         // ticks, up to owedTicks, in which others may have been stopped to measure that; ticks without active neighbours count more
	active  bool          // it used or wanted the device in the latest ticks
	starved bool          // it is owed more than it waits for patiently
	stopped bool          // it gets no tokens until other shares have got what they are owed
}

// addTicks adds what a share reported in the given time. Work that stays unfinished, with nothing reported meanwhile, counts as use now, not
// when it ends. A share that wanted the device wants it until it has tokens again, since it cannot show this itself.
func (a *timeAccount) addTicks(l Launches, lacksTokens bool, passed time.Duration) {
	a.reported = min(a.reported+l.Device, maxTime)
	a.used = min(max(a.reported, 0), passed)
	if a.busy && l.Busy && l.Device == 0 {
		a.used = passed
	}
	a.reported -= a.used
	waits := lacksTokens && a.wanted > 0
	a.wanted = a.used
	if waits || l.Busy && (a.busy || a.waits) {
		a.wanted = passed
	}
	a.waits = waits
	if !l.Busy {
		a.reported = 0
	}
	a.busy = l.Busy
	a.active = l.Busy || l.Device > 0 || l.Blocks > 0
}

// timeAccounts are the time accounts of the shares of a slice.
type timeAccounts struct {
	members   []*member
	tick      time.Duration
	emergency bool // the slice is in EMERGENCY
}

// addTicks adds ticks to the accounts of all shares, and decides which shares are stopped.
func (s timeAccounts) addTicks(n int64) {
	n = min(n, owedTicks)
	passed := time.Duration(n) * s.tick
	for _, m := range s.members {
		m.time.addTicks(m.tick, m.lacksTokens(), passed)
	}
	for _, m := range s.members {
		beside := s.hasActiveNeighbour(m)
		m.time.disturbed = beside && s.needsMeasuring(m)
		m.time.measure(m, beside, n, s.tick)
		if m.time.isMeasured(s.tick) {
			m.time.launched = min(m.time.launched+m.time.timeOf(m.tick.Blocks, m.cap, s.mostOwed(m)), s.mostOwed(m))
		}
	}
	got := make([]deviceTime, len(s.members))
	for k, m := range s.members {
		got[k] = s.deviceTimeGot(m, passed)
	}
	for k, m := range s.members {
		a := &m.time
		a.launched = max(0, a.launched-got[k])
		if !a.busy {
			a.launched = 0
		}
		switch {
		case a.wanted > 0:
			a.owed += deviceTimeOf(a.wanted, m.Request) - got[k]
		case !a.busy: // otherwise it has just launched
			a.owed = max(a.owed-got[k], min(a.owed, 0)) // it did not want what it could have had
		}
		a.owed = min(max(a.owed, -surplusTicks*s.requestOf(m)), s.mostOwed(m))
		if a.idle += n; a.active || a.wanted > 0 {
			a.idle = 0
		}
		if a.idle > quietAfter {
			a.owed = 0
		}
		a.starved = s.isStarved(m)
	}
	for _, m := range s.members {
		m.time.stopped = s.isStopped(m)
	}
}

// measure adds what a share launched in the latest ticks, if no neighbour was active in them nor in those before.
func (a *timeAccount) measure(m *member, disturbed bool, n int64, tick time.Duration) {
	if disturbed {
		a.alone, a.reported = 0, min(a.reported, 0) // what remains is time spent behind neighbours
		a.tries++
		return
	}
	a.tries += owedTicks / window
	if a.alone += n; a.alone <= n {
		return
	}
	a.blocks, a.took = min(a.blocks+m.tick.Blocks, maxBlocks), a.took+a.used
	if a.took > mostMeasured*tick {
		a.blocks, a.took = a.blocks/2, a.took/2
	}
}

// isMeasured reports whether it is known how long blocks of the share take.
func (a *timeAccount) isMeasured(tick time.Duration) bool {
	return a.took >= leastMeasured*tick && a.blocks > 0
}

// timeOf returns the device time that a number of blocks takes, limited to most.
func (a *timeAccount) timeOf(blocks int64, cap share.PerMille, most deviceTime) deviceTime {
	return deviceTime(min(float64(blocks)*float64(deviceTimeOf(a.took, cap))/float64(a.blocks), float64(most)))
}

// hasActiveNeighbour reports whether another share used or wanted the device in the latest ticks.
func (s timeAccounts) hasActiveNeighbour(m *member) bool {
	return slices.ContainsFunc(s.members, func(other *member) bool { return other != m && other.time.active })
}

// requestOf returns the device time in a tick that a share requests.
func (s timeAccounts) requestOf(m *member) deviceTime { return deviceTimeOf(s.tick, m.Request) }

// mostOwed returns the most that a share can be owed.
func (s timeAccounts) mostOwed(m *member) deviceTime { return owedTicks * s.requestOf(m) }

// deviceTimeGot returns the device time that a share got in the latest ticks, at most what it wanted at its cap. Alone and beside active shares
// that may be stopped for it, that is the estimate for its launches; alone with tokens, it is at least its request. Beside others, nothing can be done about
// what they take. So the share counts as having got its part in proportion to the requests, even if it wanted nothing, since it could have had
// that part. A share without a request gets nothing that counts.
func (s timeAccounts) deviceTimeGot(m *member, passed time.Duration) deviceTime {
	if m.Request == 0 {
		return 0
	}
	caps, requests, disturbed := m.cap, m.Request, false
	for _, other := range s.members {
		if other != m && other.time.active {
			caps, requests = caps+other.cap, requests+other.Request
			disturbed = disturbed || mayStop(other, m)
		}
	}
	a, used := &m.time, m.time.used
	if a.wanted == 0 {
		used = passed
	}
	alone, measured, wanted := caps <= share.Whole, a.wanted > 0 && a.isMeasured(s.tick), deviceTimeOf(a.wanted, m.cap)
	switch {
	case measured && alone && !m.lacksTokens():
		return max(min(a.launched, wanted), deviceTimeOf(a.wanted, m.Request))
	case measured && disturbed:
		return min(a.launched, wanted)
	case alone && !m.lacksTokens():
		return max(deviceTimeOf(used, m.cap), wanted)
	case alone:
		return deviceTimeOf(used, m.cap)
	case a.wanted > 0 && disturbed && m.Priority != share.SLO:
		return 0 // it may have waited all the time; it is measured when others are stopped for it
	}
	part := min(deviceTimeOf(used, m.cap), deviceTimeOf(used, share.Whole)*deviceTime(m.Request)/deviceTime(requests))
	return max(part, deviceTimeOf(a.wanted, m.Request))
}

// mayStop reports whether share m may be stopped to give a neighbour what it is owed: m yields to the neighbour, or got more than its
// request.
func mayStop(m, neighbour *member) bool { return m.yieldsTo(neighbour) || m.time.owed < 0 }

// yieldsTo reports whether a share comes behind another one: best effort behind an SLO share, and a share without a request behind any that
// has one.
func (m *member) yieldsTo(neighbour *member) bool {
	return neighbour.Priority == share.SLO && m.Priority != share.SLO || neighbour.Request > 0 && m.Request == 0
}

// isStopped reports whether a share gets no tokens because another one is owed device time and the caps do not fit together. A share without
// a request is stopped as soon as a share with a request is active; in an EMERGENCY, even if the caps fit together.
func (s timeAccounts) isStopped(m *member) bool {
	caps, owed, fits := m.cap, false, m.Request > 0 || !s.emergency
	for _, other := range s.members {
		if other == m {
			continue
		}
		wants := other.time.active || other.time.wanted > 0
		if wants {
			caps += other.cap
		}
		owed = owed || m.Request == 0 && other.Request > 0 && wants
		owed = owed || s.isOwed(other) && mayStop(m, other)
		owed = owed || s.needsMeasuring(other) && m.yieldsTo(other) && !m.time.starved
	}
	return owed && (caps > share.Whole || !fits)
}

// needsMeasuring reports whether the shares that yield to a share are to be stopped in order to measure how long its blocks take. Best
// effort that only has best effort beside it is not measured.
func (s timeAccounts) needsMeasuring(m *member) bool {
	measures := m.Priority == share.SLO || slices.ContainsFunc(s.members, func(other *member) bool { return other.yieldsTo(m) })
	return measures && (m.time.busy || !m.isQuiet()) && m.time.tries < owedTicks && !m.time.isMeasured(s.tick)
}

// isOwed reports whether a share is owed so much device time that others are stopped for it.
func (s timeAccounts) isOwed(m *member) bool {
	if m.Priority == share.SLO {
		return m.time.owed > 0
	}
	return m.time.starved
}

// isStarved reports whether a share is owed so much device time that it need not be patient any more. One of which it is not known how long
// its blocks take gets more time at once, so that it can be measured.
func (s timeAccounts) isStarved(m *member) bool {
	most := patientTicks * s.requestOf(m)
	if m.time.starved && !m.time.isMeasured(s.tick) {
		most = most * 3 / 4
	}
	return m.Request > 0 && m.time.owed > most
}

// lacksTokens reports whether a share has no tokens for the sake of others, or because its tokens are worth less than they should be. An SLO
// share that is not stopped has those of its limit.
func (m *member) lacksTokens() bool {
	return m.time.stopped || m.Priority != share.SLO && m.balance <= 0
}
