package tokenserver

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// pollInterval is how often the clients' pages are read while a process waits for SMs that may have become idle.
const pollInterval = 2 * time.Millisecond

// timePolicy is the tokenPolicy of slices that are not elastic. Its tokens allow launches until a deadline, in the order of the slot table
// or of FaST-GShare's queue.
type timePolicy struct{ *token.Slice }

// timeState is the state of a vGPU under time tokens. Its processes take turns while the vGPU holds a token.
type timeState struct {
	granted *token.Token // nil while the vGPU has none
	running *clientState // the process in state Run
	next    *clientState // the process to run next
	wanting bool         // package token has been told that it has work
	filled  uint64       // sequence number of the token that its unfinished work will use up

	unsettled time.Duration // device time not yet reported to package token
	settled   time.Duration // time of the last report to package token
	partStart time.Duration // as on the pages of the processes, see writeGuarantee
	held      bool          // it held a token since then
}

func (p *timePolicy) join(v *vgpu, now time.Duration) error {
	request, limit := v.quota(v.idle)
	return p.Join(now, token.Member{ID: v.id, SM: v.SMRequest, QuotaRequest: request, QuotaLimit: limit})
}

// quota returns the request and the limit of a vGPU for its part of the window: its own, or no request and all that others leave.
func (v *vgpu) quota(idleOnly bool) (request, limit share.PerMille) {
	if idleOnly {
		return 0, share.Whole
	}
	return v.QuotaRequest, v.QuotaLimit
}

func (p *timePolicy) leave(v *vgpu, now time.Duration) { _ = p.Leave(now, v.id) } // fails only for a vGPU that has not joined

func (p *timePolicy) resize(*vgpu, share.PerMille, time.Duration) error { return ErrFixed }

func (p *timePolicy) reshape(v *vgpu, idleOnly bool, now time.Duration) error {
	request, limit := v.quota(idleOnly)
	return p.Reshape(now, v.id, request, limit)
}

func (p *timePolicy) attach(*vgpu, *clientState, time.Duration) {}

// partStart returns a time at which the own time of a vGPU begins in one of the windows, or 0 if that has no fixed position. Without a server, its
// processes keep to these times, so that they meet no neighbours.
func (p *timePolicy) partStart(v *vgpu) time.Duration {
	if start, fixed := p.OwnStart(v.id); fixed {
		return start + v.Slice.server.Window
	}
	return 0
}

func (p *timePolicy) step(s *Slice, now time.Duration) time.Duration {
	s.lastStep = now
	for _, v := range s.vgpus {
		p.reportUse(v, now)
	}
	changes, next := p.Advance(now)
	for _, c := range changes {
		if v := s.find(c.ID); v != nil {
			v.applyChange(c)
		}
	}
	for _, v := range s.vgpus {
		if start := p.partStart(v); start != v.partStart {
			v.partStart = start
			v.writeGuarantee()
		}
	}
	contended := s.isContended()
	for _, v := range s.vgpus {
		if v.mustEndInTime(contended) && v.granted != nil && now >= v.launchDeadline() {
			v.filled = v.granted.Sequence
		}
	}
	s.applyDecisions(now)
	s.sendHeartbeats(now)
	if poll := s.nextPoll(now); poll != token.Never {
		return min(next, poll)
	}
	return token.Never
}

// reportUse tells package token whether a vGPU has work, launched or waiting, and how much device time it used since the last settlement. It
// settles only while no work is unfinished, or after a window in which some work was finished: before that, the time of unfinished work
// would count as unused.
func (p *timePolicy) reportUse(v *vgpu, now time.Duration) {
	v.leased.expire(now)
	v.observePeak()
	hasWork, open := false, token.NoWork
	for _, c := range v.clients {
		done, working := c.readPage(now, v.Slice.server.RunAhead)
		v.usage.add(now, done)
		v.unsettled += done.busy
		open = max(open, working)
		hasWork = hasWork || c.hasWork(now)
	}
	_ = p.ReportOpenWork(now, v.id, open) // this and the following calls fail only for shares that have not joined
	waited := v.unsettled > 0 && now-v.settled >= v.Slice.server.Window
	if (v.held || v.unsettled > 0) && (open == token.NoWork || waited) {
		_ = p.Settle(now, v.id, v.unsettled)
		v.unsettled, v.settled, v.held = 0, now, v.granted != nil
	}
	switch {
	case hasWork && !v.wanting:
		_ = p.RequestToken(now, v.id)
	case v.wanting && !hasWork:
		_ = p.ReleaseToken(now, v.id)
	}
	v.wanting = hasWork
}

// isContended reports whether a process waits while its vGPU has no token, so that other shares must not exceed their tokens. A vGPU that
// gets only the time that others leave does not count.
func (s *Slice) isContended() bool {
	return slices.ContainsFunc(s.vgpus, func(v *vgpu) bool { return !v.idle && v.granted == nil && v.hasWaiting() })
}

// applyDecisions pauses and starts processes as decided. It pauses before it starts, so that SMs are never granted twice. vGPUs with
// sessions of an earlier server, whose lease has not ended, count as running.
func (s *Slice) applyDecisions(now time.Duration) {
	var used share.PerMille
	for _, v := range s.vgpus {
		v.chooseNext(now)
		if v.next != v.running {
			v.pauseRunning(now)
		}
		if v.running != nil || v.leased.any() {
			used += v.SMRequest
		}
	}
	for _, v := range s.vgpus {
		if v.next != v.running && used+v.SMRequest <= share.Whole {
			used += v.SMRequest
			v.runNext(now)
		}
	}
}

// nextPoll returns when the clients' pages must be read next: soon if a process waits, at the next heartbeat if processes exist but none
// waits, and token.Never if there are none.
func (s *Slice) nextPoll(now time.Duration) time.Duration {
	poll := token.Never
	contended := s.isContended()
	for _, v := range s.vgpus {
		switch {
		case v.hasWaiting():
			poll = min(poll, now+pollInterval)
		case len(v.clients) > 0 || v.leased.any():
			poll = min(poll, now+heartbeatInterval)
		}
		if v.mustEndInTime(contended) {
			poll = min(poll, v.nextDeadlineCheck(now))
		}
	}
	return poll
}

// applyChange records that the token policy granted or revoked the vGPU's token, and writes a new token to the page of the running process.
func (v *vgpu) applyChange(c token.Change) {
	if c.Kind == token.Revoke {
		v.granted = nil
		return
	}
	v.granted, v.held = &c.Token, true
	v.usage.tokens++
	if v.running != nil {
		v.running.writeToken(v.granted)
		v.running.setRunAhead(max(v.runAhead(), time.Duration(v.running.server.at.RunAhead.Load())))
	}
}

// launchDeadline returns when the process must stop launching, because its unfinished work will use up the rest of the token. The process
// cannot know how much of the current batch is done, so a quarter of the run-ahead (the unfinished work that it may have) is subtracted from
// that work. A process that overstates its work by more than that only loses time of its own.
func (v *vgpu) launchDeadline() time.Duration {
	var open uint64
	for _, c := range v.clients {
		if c.open != token.LongWork || v.Slice.lastStep >= c.openSince+v.measuringTime() {
			open = max(open, c.client.at.Open.Load())
		}
	}
	known := time.Duration(min(open, uint64(v.granted.Amount)))
	return v.granted.Until - max(0, known-v.measuringTime())
}

// measuringTime returns for how long work must have been open without progress before an estimate above the run-ahead is believed. The
// process launches nothing more meanwhile, and a kernel that turns out to be short ends within this time.
func (v *vgpu) measuringTime() time.Duration { return v.Slice.server.RunAhead / 4 }

// mustEndInTime reports whether the share's work must end with its token, because later work would exceed the share's limit or use the time
// of shares that wait. A share that has the whole window continues with its next token instead.
func (v *vgpu) mustEndInTime(contended bool) bool {
	request, limit := v.quota(v.idle)
	return limit < share.Whole || contended && request < share.Whole
}

// nextDeadlineCheck returns when launchDeadline must be compared with the time again: the earliest time at which the unfinished work could
// use up the token.
func (v *vgpu) nextDeadlineCheck(now time.Duration) time.Duration {
	ahead := v.Slice.server.RunAhead
	if v.running == nil || v.granted == nil {
		return token.Never
	}
	if i := slices.IndexFunc(v.clients, func(c *clientState) bool { return c.open == token.LongWork && now < c.openSince+v.measuringTime() }); i >= 0 {
		return v.clients[i].openSince + v.measuringTime()
	}
	if first := v.granted.Until - ahead; now < first {
		return first
	}
	return max(v.launchDeadline(), now+ahead/8)
}

// chooseNext selects the process to run under the vGPU's token: the running one, until its turn is over and another one waits.
func (v *vgpu) chooseNext(now time.Duration) {
	v.next = nil
	if v.granted == nil || v.leased.any() || v.filled == v.granted.Sequence {
		return
	}
	v.next = v.running
	if r := v.running; r != nil && r.hasWork(now) && now-r.stateSince < v.Slice.server.Turn {
		return
	}
	if slices.ContainsFunc(v.clients, func(c *clientState) bool { return c != v.running && c.open == token.LongWork }) {
		return // the process to start would run beside another process of the container
	}
	i := slices.IndexFunc(v.clients, func(c *clientState) bool { return c.waiting })
	if i >= 0 && (v.running == nil || v.running.open != token.LongWork) {
		v.next = v.clients[i]
	}
}

func (v *vgpu) pauseRunning(now time.Duration) {
	if v.running != nil {
		v.running.setState(tokenwire.Pause, now)
		v.running = nil
	}
}

// runNext puts the chosen process into state Run, and moves it to the end of the round-robin order.
func (v *vgpu) runNext(now time.Duration) {
	v.running = v.next
	v.usage.waits.add(now-v.running.waitSince, v.Slice.server.Window)
	v.clients = append(without(v.clients, v.running), v.running)
	v.running.writeToken(v.granted)
	v.running.setRunAhead(v.runAhead())
	v.running.setState(tokenwire.Run, now)
	v.Slice.server.Clock.Wake(&v.running.server.at.Wake)
}

// runAhead returns how much unfinished work a process may have when it starts to run: no more than its token allows, unless the share has the
// whole window and goes on with its next token. While a process runs, the value only grows, since its threads cannot all learn of a smaller
// value at the same time.
func (v *vgpu) runAhead() time.Duration {
	if request, _ := v.quota(v.idle); request == share.Whole {
		return v.Slice.server.RunAhead
	}
	return max(v.Slice.server.RunAhead/8, min(v.Slice.server.RunAhead, time.Duration(v.granted.Amount)))
}
