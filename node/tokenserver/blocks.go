package tokenserver

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
	"github.com/gshare-dev/gshare/vgpu/token/rckm"
)

// blockPolicy is the tokenPolicy of elastic slices. Its tokens allow the launch of a number of thread blocks.
type blockPolicy struct{ *rckm.Slice }

// blockState is the state of a vGPU under block tokens. All its processes run at once and share one credit of blocks.
type blockState struct {
	limit    share.PerMille // current SM limit, at most its SMLimit
	sms      share.PerMille // SMs that its latest token is worth
	token    token.Token    // the latest one
	credit   uint64         // blocks that the container may have taken since it joined
	reported uint64         // taken blocks that package rckm has been told of
	lastRead time.Duration  // time of the last report to package rckm
	working  bool           // package rckm has been told that launched work is unfinished
}

func (p *blockPolicy) join(v *vgpu, now time.Duration) error {
	v.limit, v.lastRead = v.SMLimit, now
	priority, request := v.guarantee(v.idle)
	return p.Join(now, rckm.Member{ID: v.id, Priority: priority, Request: request, Limit: v.SMLimit})
}

// guarantee returns the priority of an elastic vGPU and its request for SMs: its own, or none if it gets only what others leave.
func (v *vgpu) guarantee(idleOnly bool) (share.Priority, share.PerMille) {
	if idleOnly {
		return share.BestEffort, 0
	}
	return cmp.Or(v.Priority, share.BestEffort), v.SMRequest
}

func (p *blockPolicy) leave(v *vgpu, now time.Duration) { _ = p.Leave(now, v.id) } // fails only for a vGPU that has not joined

func (p *blockPolicy) resize(v *vgpu, limit share.PerMille, now time.Duration) error {
	if limit < v.SMRequest { // even while it gets only what others leave
		return fmt.Errorf("a limit of %v is not between %v and %v", limit, v.SMRequest, v.SMLimit)
	}
	if err := p.Resize(now, v.id, limit); err != nil {
		return err
	}
	v.limit = limit
	return nil
}

func (p *blockPolicy) reshape(v *vgpu, idleOnly bool, now time.Duration) error {
	priority, request := v.guarantee(idleOnly)
	return p.Reshape(now, v.id, priority, request)
}

// attach writes the credit of a vGPU to the page of a new process. The process stays in state Run, so that it waits only when the credit is
// used up.
func (p *blockPolicy) attach(v *vgpu, c *clientState, now time.Duration) {
	c.server.at.Unit.Store(tokenwire.UnitBlocks)
	c.writeCredit(v.token, v.credit)
	c.setState(tokenwire.Run, now)
	c.running = false
}

func (p *blockPolicy) step(s *Slice, now time.Duration) time.Duration {
	for _, v := range s.vgpus {
		p.reportLaunches(v, now)
	}
	changes, next := p.Advance(now)
	for _, c := range changes {
		if v := s.find(c.ID); v != nil {
			p.applyToken(v, c.Token, now)
		}
	}
	s.sendHeartbeats(now)
	if s.writeNextTick(next) {
		return min(next, now+heartbeatInterval)
	}
	return token.Never
}

// writeNextTick writes the time of the next tokens to the pages of all processes, or 0 if no tokens are issued before the next launch. It
// returns false if the slice has no processes.
func (s *Slice) writeNextTick(next time.Duration) (written bool) {
	if next == token.Never {
		next = 0
	}
	for _, v := range s.vgpus {
		for _, c := range v.clients {
			if !c.detached {
				c.server.at.Deadline.Store(uint64(next))
			}
			written = true
		}
	}
	return written
}

// applyToken writes a new token of a vGPU to the pages of its processes and wakes those that wait.
func (p *blockPolicy) applyToken(v *vgpu, t token.Token, now time.Duration) {
	v.token = t
	v.credit = v.reported + uint64(t.Amount)
	v.sms = min(blocksToSMs(t.Amount, p.MaxTokens(v.id)), v.limit) // MPS caps a member at its limit, which its tokens may exceed
	v.usage.tokens++
	for _, c := range v.clients {
		if c.detached {
			continue
		}
		c.writeCredit(v.token, v.credit)
		if c.waiting && t.Amount > 0 {
			c.waiting = false
			v.usage.waits.add(now-c.waitSince, v.Slice.server.Window)
		}
		if c.client.at.Waiting.Load() > 0 {
			v.Slice.server.Clock.Wake(&c.server.at.Wake)
		}
	}
}

// blocksToSMs converts a number of thread blocks to the part of the SMs that they keep busy for a tick, given the number (whole) that keeps
// all SMs busy.
func blocksToSMs(blocks, whole int64) share.PerMille {
	return share.PerMille((blocks*int64(share.Whole) + whole/2) / whole)
}

// reportLaunches tells package rckm what the processes of a vGPU have launched since the last call, if anything changed.
func (p *blockPolicy) reportLaunches(v *vgpu, now time.Duration) {
	v.leased.expire(now)
	v.observePeak()
	l := rckm.Launches{Blocks: v.takenBlocks(), First: now, Last: now}
	for _, c := range v.clients {
		done, open := c.readPage(now, v.Slice.server.RunAhead)
		v.usage.add(now, done)
		l.Device += done.busy
		start, longest := c.readCycles(now)
		l.First = min(l.First, start)
		l.Busy = l.Busy || open != token.NoWork && start < now
		l.Batch = max(l.Batch, longest)
	}
	if l.Blocks > 0 || l.Device > 0 || l.Batch > 0 || l.Busy != v.working {
		l.First = max(l.First, v.lastRead)
		_ = p.Report(now, v.id, l) // fails only for a member that has not joined
		v.working = l.Busy
	}
	v.lastRead = now
}

// takenBlocks returns how many thread blocks the vGPU's processes have taken since the last call. Blocks that a process returns and later
// takes again are charged only once.
func (v *vgpu) takenBlocks() int64 {
	n := int64(v.page.at.Taken.Load() - v.reported)
	if n <= 0 {
		return 0
	}
	v.reported += uint64(n)
	return n
}
