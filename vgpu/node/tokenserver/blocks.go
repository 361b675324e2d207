package tokenserver

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// blocks is the account of a vGPU whose tokens are thread blocks (Dilu DI-55). All its processes run at a time, and take what
// they launch from one credit.
type blocks struct {
	limit    share.PerMille // what the share may have now, at most its SMLimit
	sms      share.PerMille // what its latest tokens are worth
	token    token.Token    // the latest
	credit   uint64         // that the container may have taken
	reported uint64         // of what it has taken, known to the rules
	looked   time.Duration  // when the rules were told last
	working  bool           // as the rules know it
}

// stepBlocks brings an elastic slice up to now: what processes launched goes to the rules, and new tokens to their pages.
func (s *Slice) stepBlocks(now time.Duration) {
	for _, v := range s.vgpus {
		v.reportLaunches(now)
	}
	changes, next := s.blocks.Advance(now)
	for _, c := range changes {
		if v := s.find(c.ID); v != nil {
			v.lend(c.Token, now)
		}
	}
	s.beatAll(now)
	if s.announceTick(next) {
		s.timer.Set(min(next, now+heartbeat))
	}
}

// announceTick tells the processes when their next tokens come: never, and the word is 0, while the rules sleep until somebody
// launches. False if there are no processes.
func (s *Slice) announceTick(next time.Duration) (told bool) {
	if next == token.Never {
		next = 0
	}
	for _, v := range s.vgpus {
		for _, seat := range v.seats {
			seat.server.at.Deadline.Store(uint64(next))
			told = true
		}
	}
	return told
}

// lend takes a decision of the rules over, and wakes who waits for it.
func (v *vgpu) lend(t token.Token, now time.Duration) {
	v.token = t
	v.credit = v.reported + uint64(t.Amount)
	v.sms = min(worth(t.Amount, v.Slice.blocks.MaxTokens(v.id)), v.limit) // at its cap it has more than that is worth
	v.tokens++
	for _, s := range v.seats {
		s.lend(v.token, v.credit)
		if s.waiting && t.Amount > 0 {
			s.waiting = false
			v.waited.add(now-s.asked, v.Slice.server.Window)
		}
		if s.client.at.Waiting.Load() > 0 {
			v.Slice.server.Clock.Wake(&s.server.at.Wake)
		}
	}
}

// worth is a part of the blocks that fill the slice for a tick, rounded.
func worth(blocks, whole int64) share.PerMille {
	return share.PerMille((blocks*int64(share.Whole) + whole/2) / whole)
}

// lend writes the credit on the page. Who begins to wait now sees either the new word or the new credit.
func (s *seat) lend(t token.Token, credit uint64) {
	s.server.at.Sequence.Store(t.Sequence)
	s.server.at.Amount.Store(uint64(t.Amount))
	s.server.at.Credit.Store(credit)
	s.server.at.Wake.Add(1)
}

// sit lets a process take from the credit of its vGPU. It has no turns: it may wait at any time.
func (v *vgpu) sit(s *seat, now time.Duration) {
	s.server.at.Unit.Store(tokenwire.UnitBlocks)
	s.lend(v.token, v.credit)
	s.set(tokenwire.Run, now)
	s.running = false
}

// guaranteed is the part of each window that a process without a server may have: with the SMs of the limit, time makes up the
// request.
func (v VGPU) guaranteed() share.PerMille {
	if !v.Elastic {
		return v.QuotaRequest
	}
	return max(1, v.SMRequest*share.Whole/v.SMLimit)
}
