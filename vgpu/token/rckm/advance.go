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
	if n := s.elapsed() - s.ticks; n > 0 && s.awake {
		s.skip(n - 1)
		s.tick()
	}
	changes = s.changes()
	if s.asleep(changes) {
		s.awake = false
		return changes, token.Never
	}
	return changes, time.Duration(s.ticks+1) * s.config.Tick
}

func (s *Slice) elapsed() int64 { return int64(s.now / s.config.Tick) }

// skip counts ticks that nobody asked for as silent.
func (s *Slice) skip(n int64) {
	if n <= 0 {
		return
	}
	s.ticks += n
	for _, m := range s.members {
		m.silent = int(min(int64(m.silent)+n, window))
	}
}

func (s *Slice) tick() {
	s.ticks++
	for _, m := range s.members {
		m.close(s.now, window*s.config.Tick)
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
			Token: token.Token{Unit: Blocks, Amount: max(m.balance, 0), Deadline: token.Never, Sequence: s.sequence}})
	}
	return list
}

// asleep says that nobody launches and the last tick changed nothing.
func (s *Slice) asleep(changes []token.Change) bool {
	if len(changes) > 0 {
		return false
	}
	for _, m := range s.members {
		if m.silent < window || m.tick.Blocks > 0 || m.balance < m.last {
			return false
		}
	}
	return true
}
