package rckm

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// maxTime is the latest time that a slice accepts, so that sums of times cannot overflow.
const maxTime = token.Never / 2

// Slice issues block tokens, the right to launch a number of thread blocks, to the shares of one elastic slice. Times count from its start,
// and a time before the latest one counts as the latest one. It is not safe for concurrent use.
type Slice struct {
	config   Config
	now      time.Duration
	ticks    int64     // number of ticks processed
	members  []*member // in the order of their IDs
	pressure Pressure
	awake    bool // something may change at the next tick
	sequence uint64
}

// New returns a Slice without shares.
func New(c Config) (*Slice, error) {
	c.Tick = cmp.Or(c.Tick, 5*time.Millisecond)
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Slice{config: c}, nil
}

// Join adds a share, with the tokens of its request (D16).
func (s *Slice) Join(now time.Duration, m Member) error {
	s.advanceTo(now)
	at, known := s.find(m.ID)
	switch {
	case !m.valid():
		return fmt.Errorf("share %d: invalid request of %v to %v of the SMs with priority %q", m.ID, m.Request, m.Limit, m.Priority)
	case known:
		return fmt.Errorf("share %d: %w", m.ID, token.ErrKnown)
	}
	s.members = slices.Insert(s.members, at, newMember(m))
	s.awake = true
	return nil
}

// Leave removes a share, and ends the EMERGENCY of which it is the owner (D15).
func (s *Slice) Leave(now time.Duration, id token.ID) error {
	return s.update(now, id, func(m *member) error {
		s.members = slices.DeleteFunc(s.members, func(other *member) bool { return other == m })
		return nil
	})
}

// Resize changes the SM limit of a share, between its request and the limit with which it joined, which is its cap under MPS. The new limit
// applies from the next tick on.
func (s *Slice) Resize(now time.Duration, id token.ID, limit share.PerMille) error {
	return s.update(now, id, func(m *member) error {
		if limit < m.Request || limit > m.cap {
			return fmt.Errorf("share %d: a limit of %v is not between %v and %v", id, limit, m.Request, m.cap)
		}
		m.Limit = limit
		return nil
	})
}

// Reshape changes the priority and the request of a share. Like a share that has just joined, it has the tokens of its request, is owed
// nothing and is not in EMERGENCY. The new request applies from the next tick on.
func (s *Slice) Reshape(now time.Duration, id token.ID, priority share.Priority, request share.PerMille) error {
	return s.update(now, id, func(m *member) error {
		next := m.Member
		next.Priority, next.Request = priority, request
		if !next.valid() {
			return fmt.Errorf("share %d: invalid request of %v to %v of the SMs with priority %q", id, request, m.Limit, priority)
		}
		m.Member = next
		m.last, m.beforeCut = m.blocksOf(request), 0
		m.state, m.since, m.ratio = Recovery, s.now, 0
		m.time.owed, m.time.launched, m.time.starved, m.time.stopped = 0, 0, false, false
		return nil
	})
}

// Report records what a share launched since its last report.
func (s *Slice) Report(now time.Duration, id token.ID, l Launches) error {
	return s.update(now, id, func(m *member) error {
		m.addLaunches(s.now, l)
		return nil
	})
}

// MaxTokens returns the number of a share's thread blocks that keep the whole slice busy for a tick, or 0 if there is no such share.
func (s *Slice) MaxTokens(id token.ID) int64 {
	if at, known := s.find(id); known {
		return s.members[at].wholeSlice()
	}
	return 0
}

// update moves the slice to the given time, calls change for the share with the given ID, and lets the next Advance process ticks again. It
// returns the error of change, or an error if there is no such share.
func (s *Slice) update(now time.Duration, id token.ID, change func(*member) error) error {
	s.advanceTo(now)
	at, known := s.find(id)
	if !known {
		return fmt.Errorf("share %d: %w", id, token.ErrUnknown)
	}
	if err := change(s.members[at]); err != nil {
		return err
	}
	s.awake = true
	return nil
}

func (s *Slice) advanceTo(now time.Duration) { s.now = min(max(s.now, now), maxTime) }

func (s *Slice) find(id token.ID) (int, bool) {
	return slices.BinarySearchFunc(s.members, id, func(m *member, id token.ID) int { return cmp.Compare(m.ID, id) })
}

// Advance moves the slice to the given time. It returns the changes of tokens since the last call, and the time at which it must be called
// again: Never if only an event can change anything. At each tick a share that launched gets new tokens; one in debt has no token until the
// debt is paid.
func (s *Slice) Advance(now time.Duration) (changes []token.Change, next time.Duration) {
	s.advanceTo(now)
	ticks := int64(s.now/s.config.Tick) - s.ticks
	if ticks > 0 && s.awake {
		s.endTicks(ticks)
	}
	changes = s.changes()
	if !s.awake || ticks > 0 && len(changes) == 0 && s.isIdle() {
		s.awake = false
		return changes, token.Never
	}
	return changes, time.Duration(s.ticks+1) * s.config.Tick
}

// endTicks ends the n ticks since the last call and issues tokens for the next one. n is above 1 if the server is late or the slice was
// idle.
func (s *Slice) endTicks(n int64) {
	s.ticks += n
	if s.config.Algorithm == nil {
		timeAccounts{s.members, s.config.Tick, s.pressure.State == Emergency}.addTicks(n)
	}
	for _, m := range s.members {
		m.endTick(s.now, n, s.pressure.State == Emergency || s.othersAreSilent(m), s.config.Tick)
	}
	if s.config.Algorithm != nil {
		s.runAlgorithm()
		return
	}
	s.updateStates()
	s.updatePressure()
	for _, m := range s.members {
		if m.limitedByCap() && m.time.starved {
			m.catchUp(s.config.Tick)
		}
		m.setTokens(s.tokensFor(m))
	}
}

// runAlgorithm issues the tokens that the configured Algorithm computes, within valid bounds.
func (s *Slice) runAlgorithm() {
	var observations []Observation
	for _, m := range s.members {
		observations = append(observations, m.observation())
	}
	pressure, tokens := s.config.Algorithm(s.pressure, observations)
	s.pressure = pressure
	for k, m := range s.members {
		m.setTokens(min(max(tokens[k], 1), maxBlocks))
	}
}

// changes returns which shares' tokens were granted, renewed or revoked since the last call.
func (s *Slice) changes() []token.Change {
	var list []token.Change
	for _, m := range s.members {
		if m.hasToken == (m.balance > 0) && (!m.hasToken || m.balance == m.announced) {
			continue
		}
		kind := token.Renew
		switch {
		case m.balance <= 0:
			kind = token.Revoke
		case !m.hasToken:
			kind = token.Grant
		}
		s.sequence++
		m.hasToken, m.announced = m.balance > 0, m.balance
		list = append(list, token.Change{ID: m.ID, Kind: kind,
			Token: token.Token{Unit: token.Blocks, Amount: max(m.balance, 0), Deadline: token.Never, Sequence: s.sequence}})
	}
	return list
}

// isIdle reports whether no share launches or is in debt, and no best-effort share waits for its tokens to grow.
func (s *Slice) isIdle() bool {
	if s.ticks%growthInterval != 0 {
		return false
	}
	for _, m := range s.members {
		if m.silent < window || m.tick.Blocks > 0 || m.balance < m.last {
			return false
		}
	}
	return true
}

// tokensFor returns the number of block tokens of a share for the next tick, by Dilu's Algorithm 2.
func (s *Slice) tokensFor(m *member) int64 {
	switch {
	case m.Request == 0, m.limitedByCap() && m.time.starved:
		return m.maxTokens()
	case m.Priority == share.SLO:
		return s.sloTokens(m)
	}
	return s.bestEffortTokens(m)
}

// sloTokens returns the tokens of an SLO share: those of its limit, or of its request while another share is in EMERGENCY. Dilu keeps a
// share at its request until it is in EMERGENCY itself; but its own lack of tokens then lengthens its cycles, without any neighbour.
func (s *Slice) sloTokens(m *member) int64 {
	if s.pressure.State == Emergency && m.ratio < violationRatio {
		return m.blocksOf(m.Request)
	}
	return m.maxTokens()
}

// bestEffortTokens returns the tokens of a best-effort share. If they were cut only to measure the first cycle of an SLO share, they are
// restored at once after it, as there was no contention.
func (s *Slice) bestEffortTokens(m *member) int64 {
	next := max(m.last, m.beforeCut)
	switch s.pressure.State {
	case None:
		next = m.maxTokens()
	case Emergency:
		next = s.tokensInEmergency(m)
	case Recovery:
		if s.ticks%growthInterval == 0 {
			next = grow(next)
		}
	}
	m.beforeCut = s.tokensBeforeCut(m)
	return max(1, m.blocksOf(m.Request)*int64(bestEffortFloor)/int64(share.Whole), min(next, m.maxTokens()))
}

// tokensBeforeCut returns the tokens that a best-effort share had before they were cut for the first cycle of an SLO share that is still
// being measured, or 0 if there is none.
func (s *Slice) tokensBeforeCut(m *member) int64 {
	at, known := s.find(s.pressure.Owner)
	if s.pressure.State == Emergency && known && !s.members[at].cycles.hasReference() {
		return max(m.last, m.beforeCut)
	}
	return 0
}

// tokensInEmergency returns the tokens of a best-effort share in an EMERGENCY: those of its request, divided by the factor by which the
// owner's cycle exceeds its reference (T_current/T_min). The paper divides by that less one, which increases the tokens below a factor of
// two (D12), does not say whose cycle it is (D13: the owner's), and divides again at each tick: here the cut depends on the severity, not
// on the number of ticks (docs/adr/0017).
func (s *Slice) tokensInEmergency(m *member) int64 {
	return min(m.blocksOf(m.Request)*int64(share.Whole)/int64(s.pressure.Severity), m.last)
}

func grow(tokens int64) int64 {
	return tokens + max(1, tokens*int64(growthRatio-share.Whole)/int64(share.Whole))
}
