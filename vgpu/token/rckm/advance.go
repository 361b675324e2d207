package rckm

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/token"
)

// Advance brings the slice to the time now and returns what changes for its members. At each tick a member that launched
// gets new tokens; one in debt loses its token until the debt is paid. It wants to be called again at the time next, which is
// Never if only an event can change anything.
func (s *Slice) Advance(now time.Duration) (changes []token.Change, next time.Duration) {
	s.reach(now)
	ticks := int64(s.now/s.config.Tick) - s.ticks
	if ticks > 0 && s.awake {
		s.tick(ticks)
	}
	changes = s.changes()
	if !s.awake || ticks > 0 && len(changes) == 0 && s.quiet() {
		s.awake = false
		return changes, token.Never
	}
	return changes, time.Duration(s.ticks+1) * s.config.Tick
}

// tick closes the n ticks that passed since the last one and issues tokens: one, unless the server is late or all slept.
func (s *Slice) tick(n int64) {
	s.ticks += n
	for _, m := range s.members {
		m.close(s.now, n, s.pressure.State == Emergency || s.othersSilent(m), s.config.Tick)
	}
	if s.config.Printed {
		s.issuePrinted()
		return
	}
	s.judge()
	s.combine()
	for _, m := range s.members {
		m.issue(s.tokens(m))
	}
}

// changes compares what the server knows with what is.
func (s *Slice) changes() []token.Change {
	var list []token.Change
	for _, m := range s.members {
		if m.known == (m.balance > 0) && (!m.known || m.balance == m.told) {
			continue
		}
		kind := token.Renew
		switch {
		case m.balance <= 0:
			kind = token.Revoke
		case !m.known:
			kind = token.Grant
		}
		s.sequence++
		m.known, m.told = m.balance > 0, m.balance
		list = append(list, token.Change{ID: m.ID, Kind: kind,
			Token: token.Token{Unit: token.Blocks, Amount: max(m.balance, 0), Deadline: token.Never, Sequence: s.sequence}})
	}
	return list
}

// quiet says that nobody launches or is in debt, and that no tokens wait for the next growth.
func (s *Slice) quiet() bool {
	if s.ticks%pace != 0 {
		return false
	}
	for _, m := range s.members {
		if m.silent < window || m.tick.Blocks > 0 || m.balance < m.last {
			return false
		}
	}
	return true
}
