package rckm

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Launches describes what a share launched since its last report.
type Launches struct {
	Blocks      int64         // thread blocks, including those of graphs (D22)
	First, Last time.Duration // times of the first and the last launch, if Blocks > 0
	Busy        bool          // launched work is unfinished
	Device      time.Duration // device time of finished work; 0 if there is none or it is unknown
	Batch       time.Duration // longest batch that ended, from its first launch until the host had waited for it; 0 if none or unknown
}

// member is a share of an elastic slice with its token balance and its measurements.
type member struct {
	Member
	cap       share.PerMille // limit with which it joined
	last      int64          // tokens of the last tick: R_last of Algorithm 2
	beforeCut int64          // tokens before they were cut for another member's first cycle; 0 if they were not
	balance   int64          // blocks that it may still launch in this tick; negative if it is in debt

	tick        Launches       // launches of the present tick
	silent      int            // ticks since its last launch, at most the rate window
	state       State          // its own state, if its priority is slo
	ratio       share.PerMille // its latest significant cycle, per mille of the reference
	since       time.Duration  // start of its state
	cycles      launchCycles
	calibration calibration
	time        timeAccount

	announced int64 // balance in the latest change
	hasToken  bool  // the latest change was a grant or a renewal
}

func newMember(m Member) *member {
	n := &member{Member: m, cap: m.Limit, silent: window, state: Recovery}
	n.last = n.blocksOf(m.Request)
	n.balance = n.last
	return n
}

// wholeSlice returns the number of the share's blocks that keep the whole slice busy for a tick: MaxTokens if it is set, or the measured
// value.
func (m *member) wholeSlice() int64 {
	if m.MaxTokens > 0 {
		return m.MaxTokens
	}
	return m.calibration.wholeSlice(m.cap)
}

// blocksOf converts a part of the SMs to the number of the share's blocks that keep them busy for a tick, at least 1.
func (m *member) blocksOf(p share.PerMille) int64 { return blocksOf(m.wholeSlice(), p) }

// maxTokens returns the largest number of tokens of the share, for its SM limit. If the limit is the share's MPS cap, MPS enforces it, and
// tokens leave headroom for a tick with many blocks. A lower limit is enforced by tokens alone.
func (m *member) maxTokens() int64 {
	if m.limitedByCap() {
		return capHeadroom * m.blocksOf(m.Limit)
	}
	return m.blocksOf(m.Limit)
}

// limitedByCap reports whether MPS enforces the share's SM limit, so that tokens need not.
func (m *member) limitedByCap() bool { return m.MaxTokens == 0 && m.Limit == m.cap }

// catchUp forgives a share its debt and corrects the rate that gave it too few tokens: with the one that was measured while no neighbour was
// active, or until there is one, by measuring it again.
func (m *member) catchUp(tick time.Duration) {
	m.balance = max(m.balance, 0)
	if m.time.isMeasured(tick) {
		m.calibration.raise(int64(float64(m.time.blocks) * float64(tick) / float64(m.time.took)))
	} else {
		m.calibration = calibration{}
	}
}

// addLaunches adds reported launches, within plausible bounds, to the present tick, and subtracts them from the share's tokens.
func (m *member) addLaunches(now time.Duration, l Launches) {
	m.tick.Busy = l.Busy
	m.tick.Device = min(m.tick.Device+max(0, min(l.Device, maxTime)), maxTime)
	m.tick.Batch = max(m.tick.Batch, min(l.Batch, maxCycle))
	if l.Blocks <= 0 {
		return
	}
	l.Blocks = min(l.Blocks, maxBlocks)
	l.Last = min(max(l.Last, 0), now)
	l.First = min(max(l.First, 0), l.Last)
	if m.tick.Blocks == 0 {
		m.tick.First = l.First
	}
	m.tick.Last = l.Last
	m.tick.Blocks = min(m.tick.Blocks+l.Blocks, maxBlocks)
	m.balance = max(m.balance-l.Blocks, -maxBlocks)
	m.announced = max(m.announced-l.Blocks, -maxBlocks) // the hook subtracts them by itself
}

// endTick ends n ticks: it updates the calibration of blocks, the rate window and the launch cycles. undisturbed means that neighbours did
// not slow the share down.
func (m *member) endTick(now time.Duration, n int64, undisturbed bool, tick time.Duration) {
	if !undisturbed {
		m.cycles.undisturbedSince = now
	}
	blocked := m.balance <= 0
	if !m.time.disturbed { // otherwise the device time may include waiting behind neighbours
		m.calibration.addTicks(m.tick, time.Duration(n)*tick, tick)
	}
	if m.tick.Blocks > 0 || blocked {
		m.silent = 0
	} else {
		m.silent = int(min(int64(m.silent)+n, window))
	}
	m.cycles.addTick(now, m.tick, blocked, window*tick)
	if m.isQuiet() {
		m.cycles.reset()
	}
	m.tick = Launches{Busy: m.tick.Busy}
}

// isQuiet reports whether the share has launched nothing for more than quietAfter ticks.
func (m *member) isQuiet() bool { return m.silent > quietAfter }

// setTokens sets the block tokens of the share for a tick. Unused tokens expire. Launches beyond the last tokens are a debt that is paid
// first (D21), but at most the tokens of one rate window, so that one large kernel does not lock the share out. The tokens of a stopped
// share only pay its debt.
func (m *member) setTokens(tokens int64) {
	m.last = tokens
	m.balance = max(min(m.balance, 0)+tokens, -window*tokens)
	if m.time.stopped {
		m.balance = min(m.balance, 0)
	}
}

func (m *member) observation() Observation {
	return Observation{Member: m.Member, Tokens: m.last, Launches: m.silent < window, Cycle: m.cycles.longest().length, Shortest: m.cycles.shortest,
		WholeSlice: m.wholeSlice()}
}
