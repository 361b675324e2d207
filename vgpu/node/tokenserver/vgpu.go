package tokenserver

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// VGPU describes one vGPU of a container to the server.
type VGPU struct {
	share.Share
	Slice *Slice
	UUID  string // of the slice
	Index int    // device ordinal in the container

	// Elastic is the class of the slice: SMs move between the request and the limit, by tokens of thread blocks.
	Elastic  bool
	Priority share.Priority // of an elastic share; empty is best-effort
}

// vgpu is one share in service: a container's part of one slice. The processes of the container take turns under it.
type vgpu struct {
	VGPU
	id     token.ID
	page   page[tokenwire.ContainerPage]
	used   meter
	busy   time.Duration // reported by processes, ever
	tokens uint64        // granted, ever
	waited Waits
	ghosts ghosts
	blocks // where it is elastic; what follows else

	seats   []*seat      // in the order of their turns
	granted *token.Token // nil while the rules give it none
	running *seat        // whose page says RUN
	next    *seat        // whose page is to say RUN
	wants   bool         // what the rules were told last
	closed  uint64       // sequence of the token whose time its work under way fills

	unsettled time.Duration // reported by processes, not yet to the rules
	settled   time.Duration // when the rules were told last
	held      bool          // it had a token since
}

// report tells the rules what the processes did since the last step. What they used is told when nothing of it is under way:
// before that a part of it would pass for time that was not used.
func (v *vgpu) report(now time.Duration) {
	v.ghosts.expire(now)
	wants, open := false, false
	for _, s := range v.seats {
		busy, working := s.read(now)
		v.used.add(now, busy)
		v.busy += busy
		v.unsettled += busy
		open = open || working
		wants = wants || s.wants(now)
	}
	tokens := v.Slice.tokens // its methods fail only for members that have not joined
	if v.held && (!open || now-v.settled >= v.Slice.server.Window) {
		_ = tokens.Settle(now, v.id, v.unsettled)
		v.unsettled, v.settled, v.held = 0, now, v.granted != nil
	}
	switch {
	case wants && !v.wants:
		_ = tokens.Want(now, v.id)
	case v.wants && !wants:
		_ = tokens.Idle(now, v.id)
	}
	v.wants = wants
}

// change takes a decision of the rules over.
func (v *vgpu) change(c token.Change) {
	if c.Kind == token.Revoke {
		v.granted = nil
		return
	}
	v.granted, v.held = &c.Token, true
	v.tokens++
	if v.running != nil {
		v.running.announce(v.granted)
		v.running.bound(max(v.ahead(), time.Duration(v.running.server.at.RunAhead.Load())))
	}
}

// closing is when the work under way will fill the rest of its time: launches that come later would run in the time of
// others. Of the batch that runs, a quarter of the bound, a part is done that the process cannot know; what it overstates
// beyond that is its own loss.
func (v *vgpu) closing() time.Duration {
	var open uint64
	for _, s := range v.seats {
		open = max(open, s.client.at.Open.Load())
	}
	known := time.Duration(min(open, uint64(v.granted.Amount)))
	return v.granted.Until - max(0, known-v.Slice.server.RunAhead/4)
}

// ends says that the share's work should end with its token: what comes later is more than its limit, or takes the time of
// others that wait. Who may run all the time has its next token then.
func (v *vgpu) ends(contended bool) bool {
	return v.QuotaLimit < share.Whole || contended && v.QuotaRequest < share.Whole
}

// close ends launches under a token whose time is filled.
func (v *vgpu) close(now time.Duration) {
	if v.granted != nil && now >= v.closing() {
		v.closed = v.granted.Sequence
	}
}

// nextClose is when to look whether the token's time is filled: once a process that keeps within its bound could fill it.
func (v *vgpu) nextClose(now time.Duration) time.Duration {
	ahead := v.Slice.server.RunAhead
	if v.running == nil || v.granted == nil {
		return token.Never
	}
	if first := v.granted.Until - ahead; now < first {
		return first
	}
	return max(v.closing(), now+ahead/8)
}

// choose picks the process that runs under the token: the one that does, until its turn is over and another waits.
func (v *vgpu) choose(now time.Duration) {
	v.next = nil
	if v.granted == nil || v.ghosts.any() || v.closed == v.granted.Sequence {
		return
	}
	v.next = v.running
	if r := v.running; r != nil && r.wants(now) && now-r.since < v.Slice.server.Turn {
		return
	}
	if i := slices.IndexFunc(v.seats, func(s *seat) bool { return s.waiting }); i >= 0 {
		v.next = v.seats[i]
	}
}

func (v *vgpu) pause(now time.Duration) {
	if v.running != nil {
		v.running.set(tokenwire.Pause, now)
		v.running = nil
	}
}

// run gives the token to the next process, which goes to the end of the line.
func (v *vgpu) run(now time.Duration) {
	v.running = v.next
	v.waited.add(now-v.running.asked, v.Slice.server.Window)
	v.seats = append(without(v.seats, v.running), v.running)
	v.running.announce(v.granted)
	v.running.bound(v.ahead())
	v.running.set(tokenwire.Run, now)
	v.Slice.server.Clock.Wake(&v.running.server.at.Wake)
}

// ahead is how much work a process may queue that is about to run: no more than its token holds. While it runs the bound only
// grows, as its threads cannot all be told at a time.
func (v *vgpu) ahead() time.Duration {
	return max(v.Slice.server.RunAhead/8, min(v.Slice.server.RunAhead, time.Duration(v.granted.Amount)))
}

// waits says that a process could run if another gave way.
func (v *vgpu) waits() bool {
	return slices.ContainsFunc(v.seats, func(s *seat) bool { return s.waiting })
}

func (v *vgpu) heartbeat(now time.Duration) {
	for _, s := range v.seats {
		s.server.at.SetHeartbeat(now)
	}
}

// remove takes a process out, and what it held of the container's memory (FG-86). If it was only cut off, its page stops it
// before another runs in its place.
func (v *vgpu) remove(s *seat, now time.Duration) {
	if !v.Slice.server.closed.Load() {
		s.set(tokenwire.Pause, now)
	}
	v.seats = without(v.seats, s)
	if v.running == s {
		v.running = nil
	}
	subtract(&v.page.at.Memory, s.client.at.Memory.Swap(0)) // taken: a process that was only cut off adds what it holds when it joins again
	if len(v.seats) == 0 {
		v.page.at.Memory.Store(0)
	}
	s.close()
}

func without(seats []*seat, s *seat) []*seat {
	return slices.DeleteFunc(seats, func(other *seat) bool { return other == s })
}
