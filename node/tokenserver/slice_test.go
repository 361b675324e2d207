package tokenserver

import (
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

const ms = time.Millisecond

// still is a clock whose time a test sets, and whose timers never fire.
type still struct{ fixedClock }

func (*still) NewTimer(func()) Timer { return unsetTimer{} }

type unsetTimer struct{}

func (unsetTimer) Set(time.Duration) {}
func (unsetTimer) Stop()             {}

// stillSlice returns a slice under a still clock, with a vGPU of 60 % of the SMs for each quota, and one process each.
func stillSlice(t *testing.T, quotas ...share.PerMille) (*Slice, *still) {
	t.Helper()
	clock := &still{fixedClock{now: time.Second}}
	server := New(Config{Clock: clock})
	tokens, err := token.New(token.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := server.NewSlice(tokens)
	for _, q := range quotas {
		v := &vgpu{VGPU: VGPU{Share: share.Share{SMRequest: 600, SMLimit: 600, QuotaRequest: q, QuotaLimit: q}, Slice: s}}
		if v.page, err = newPage[tokenwire.ContainerPage]("test", fixedSizeSeals); err != nil {
			t.Fatal(err)
		}
		if err := s.join(v); err != nil {
			t.Fatal(err)
		}
		c, err := newClientState(v.VGPU, 1, clock.now)
		if err != nil {
			t.Fatal(err)
		}
		c.client.close()
		if c.client, err = newPage[tokenwire.ClientPage]("test", fixedSizeSeals); err != nil { // one that the test can write
			t.Fatal(err)
		}
		t.Cleanup(c.close)
		v.clients = []*clientState{c}
	}
	return s, clock
}

// at makes one step at the given time.
func (s *Slice) at(clock *still, now time.Duration) {
	clock.now = now
	s.step()
}

// TestLeaveFreesTheSlice: when a vGPU leaves, the slice decides at once who runs next.
func TestLeaveFreesTheSlice(t *testing.T) {
	s, clock := stillSlice(t, 450, 450)
	s.at(clock, 2*time.Second)
	clock.now += ms
	if s.leave(s.vgpus[0]); len(s.vgpus) != 1 || s.lastStep != clock.now {
		t.Errorf("%d vGPUs are left, the last step was at %v, now is %v", len(s.vgpus), s.lastStep, clock.now)
	}
}

// TestIdleProcessesGetNoToken: only a vGPU with work asks for a token, and it gives it up when the work is done.
func TestIdleProcessesGetNoToken(t *testing.T) {
	s, clock := stillSlice(t, 450, 450)
	idle, works := s.vgpus[0], s.vgpus[1]
	works.clients[0].client.at.Waiting.Store(1)
	for now := time.Second; now < 2*time.Second; now += ms {
		s.at(clock, now)
		if idle.granted != nil || idle.wanting {
			t.Fatalf("at %v an idle vGPU has a token", now)
		}
	}
	if works.granted == nil || !works.wanting {
		t.Fatal("control: no token for a vGPU with work")
	}
	works.clients[0].client.at.Waiting.Store(0)
	s.at(clock, 2*time.Second)
	s.at(clock, 2*time.Second+2*idleTimeout)
	if works.wanting || works.granted != nil {
		t.Error("it keeps its token without work")
	}
}

// TestDetachedProcess: a process without a connection gets no tokens, whatever its page says, and its unfinished work counts until it has ended.
func TestDetachedProcess(t *testing.T) {
	s, clock := stillSlice(t, 450)
	v := s.vgpus[0]
	gone := v.clients[0]
	v.detachClient(gone, clock.now)
	gone.client.at.Waiting.Store(1)
	s.at(clock, time.Second)
	if v.wanting || v.running != nil {
		t.Error("it waits for a token")
	}
	gone.client.at.Open.Store(uint64(10 * ms))
	s.at(clock, time.Second+ms)
	if !v.wanting || v.running != nil || gone.open != token.LongWork {
		t.Errorf("wanting %v, running %v, open %v", v.wanting, v.running, gone.open)
	}
	gone.client.at.Open.Store(0)
	if s.at(clock, time.Second+2*ms); v.wanting {
		t.Error("its work counts after its end")
	}
}

// TestUnsettledUse: device time is passed on when no work is unfinished, or after a window, and all of it.
func TestUnsettledUse(t *testing.T) {
	s, clock := stillSlice(t, 450)
	v := s.vgpus[0]
	page := v.clients[0].client.at
	page.Waiting.Store(1)
	s.at(clock, time.Second)
	page.Waiting.Store(0)
	v.settled = time.Second
	for n := range uint64(3) {
		page.Open.Store(uint64(500 * time.Microsecond)) // work goes on
		page.Busy.Store((n + 1) * uint64(2*ms))
		s.at(clock, time.Second+time.Duration(n+1)*3*ms)
		if want := time.Duration(n+1) * 2 * ms; v.unsettled != want {
			t.Errorf("after %d reports %v are not settled, want %v", n+1, v.unsettled, want)
		}
	}
	page.Open.Store(0)
	if s.at(clock, time.Second+12*ms); v.unsettled != 0 || v.settled != time.Second+12*ms {
		t.Errorf("after the end %v are not settled since %v", v.unsettled, v.settled)
	}
	page.Open.Store(uint64(500 * time.Microsecond))
	page.Busy.Add(uint64(ms))
	s.at(clock, time.Second+111*ms)
	if s.at(clock, time.Second+112*ms); v.unsettled != 0 {
		t.Errorf("%v are not settled after a window", v.unsettled)
	}
}

// TestHeartbeats: pages get a heartbeat once in an interval, not with each step.
func TestHeartbeats(t *testing.T) {
	s, clock := stillSlice(t, 450)
	heartbeat := func() time.Duration { return time.Duration(s.vgpus[0].clients[0].server.at.Heartbeat.Load()) }
	s.at(clock, 2*time.Second)
	for _, step := range []struct{ at, want time.Duration }{
		{2*time.Second + ms, 2 * time.Second},
		{2*time.Second + heartbeatInterval - 1, 2 * time.Second},
		{2*time.Second + heartbeatInterval, 2*time.Second + heartbeatInterval},
		{2*time.Second + heartbeatInterval + ms, 2*time.Second + heartbeatInterval},
	} {
		if s.at(clock, step.at); heartbeat() != step.want {
			t.Errorf("at %v the heartbeat is of %v, want %v", step.at, heartbeat(), step.want)
		}
	}
}

// TestNextPoll: pages are read soon while a process waits, for heartbeats while there are processes, and otherwise not.
func TestNextPoll(t *testing.T) {
	s, clock := stillSlice(t, 450)
	v := s.vgpus[0]
	now := clock.now
	if got := s.nextPoll(now); got != now+heartbeatInterval {
		t.Errorf("with an idle process in %v", got-now)
	}
	v.clients[0].waiting = true
	if got := s.nextPoll(now); got != now+2*ms {
		t.Errorf("with a process that waits in %v", got-now)
	}
	clients := v.clients
	v.clients = nil
	if got := s.nextPoll(now); got != token.Never {
		t.Errorf("without processes in %v", got-now)
	}
	v.leased = newLeasedSessions([]uint64{1}, now+time.Second)
	if got := s.nextPoll(now); got != now+heartbeatInterval {
		t.Errorf("with a session of an earlier server in %v", got-now)
	}
	v.clients = clients
}

// TestNextDeadlineCheck: the work of a process is looked at again when its length is known, when it could use up the token, and then often.
func TestNextDeadlineCheck(t *testing.T) {
	s, _ := stillSlice(t, 450)
	v := s.vgpus[0]
	c := v.clients[0]
	if got := v.nextDeadlineCheck(0); got != token.Never {
		t.Errorf("without a token at %v", got)
	}
	v.running, v.granted = c, &token.Token{Amount: int64(20 * ms), Until: 120 * ms}
	ahead := s.server.RunAhead
	for _, step := range []struct {
		name      string
		open      token.OpenWork
		work, now time.Duration
		want      time.Duration
	}{
		{"no work", token.NoWork, 0, 100 * ms, 120*ms - ahead},
		{"near the end", token.NoWork, 0, 120*ms - ahead, 120 * ms},
		{"long work, not measured", token.LongWork, 10 * ms, 100 * ms, 100*ms + ahead/4},
		{"long work, measured", token.LongWork, 10 * ms, 100*ms + ahead/4, 120*ms - ahead},
		{"long work near the end", token.LongWork, 10 * ms, 120*ms - ahead, 120*ms - ahead + ahead/8},
	} {
		c.open, c.openSince, s.lastStep = step.open, 100*ms, step.now
		c.client.at.Open.Store(uint64(step.work))
		if got := v.nextDeadlineCheck(step.now); got != step.want {
			t.Errorf("%s: at %v, want %v", step.name, got, step.want)
		}
	}
}

// TestRunAhead: unfinished work is bounded by the rest of the token, except for a share that goes on with its next token.
func TestRunAhead(t *testing.T) {
	for _, c := range []struct {
		quota        share.PerMille
		amount, want time.Duration
	}{
		{999, 20 * ms, ms}, {999, ms / 2, ms / 2}, {999, ms / 100, ms / 8},
		{share.Whole, 20 * ms, ms}, {share.Whole, ms / 2, ms}, {share.Whole, ms / 100, ms},
	} {
		s, _ := stillSlice(t, c.quota)
		v := s.vgpus[0]
		s.server.RunAhead, v.granted = ms, &token.Token{Amount: int64(c.amount)}
		if got := v.runAhead(); got != c.want {
			t.Errorf("a quota of %v with a token of %v: %v, want %v", c.quota, c.amount, got, c.want)
		}
	}
}

// TestSignsOfWork: a launch, reported device time and unfinished work each show that a process is active; nothing else does.
func TestSignsOfWork(t *testing.T) {
	s, clock := stillSlice(t, 450)
	c := s.vgpus[0].clients[0]
	page, now := c.client.at, clock.now
	for _, step := range []struct {
		name   string
		do     func()
		active bool
	}{
		{"nothing", func() {}, false},
		{"a launch", func() { page.Launches.Add(1) }, true},
		{"nothing more", func() {}, false},
		{"device time", func() { page.Busy.Add(uint64(ms)) }, true},
		{"unfinished work", func() { page.Open.Store(1) }, true},
		{"which goes on", func() {}, true},
		{"and ends", func() { page.Open.Store(0) }, false},
	} {
		now += 10 * ms
		step.do()
		if c.readPage(now, ms); (c.lastActive == now) != step.active {
			t.Errorf("%s: active at %v, now is %v", step.name, c.lastActive, now)
		}
	}
}

// TestNumberOfVGPUs: a container has 1 to MaxVGPUs vGPUs.
func TestNumberOfVGPUs(t *testing.T) {
	s, _ := stillSlice(t)
	for _, n := range []int{0, tokenwire.MaxVGPUs + 1} {
		c := &Container{server: s.server}
		for range n {
			c.VGPUs = append(c.VGPUs, VGPU{Share: share.Share{SMRequest: 1, SMLimit: 1, QuotaRequest: 1, QuotaLimit: 1}, Slice: s})
		}
		if err := c.join(); err == nil || !strings.Contains(err.Error(), "vGPUs") {
			t.Errorf("%d vGPUs: %v", n, err)
		}
	}
}

// TestMustEndInTime: the work of a share ends with its token where more would exceed its limit, or where others wait and it has not the
// whole window.
func TestMustEndInTime(t *testing.T) {
	for _, c := range []struct {
		request, limit  share.PerMille
		alone, contends bool
	}{{450, 450, true, true}, {450, 1000, false, true}, {1000, 1000, false, false}} {
		v := &vgpu{VGPU: VGPU{Share: share.Share{QuotaRequest: c.request, QuotaLimit: c.limit}}}
		if alone, contends := v.mustEndInTime(false), v.mustEndInTime(true); alone != c.alone || contends != c.contends {
			t.Errorf("quota %d to %d: %v, and %v while others wait; want %v and %v", c.request, c.limit, alone, contends, c.alone, c.contends)
		}
	}
}

// TestBlocksToSMs: blocks are rounded to the nearest thousandth of the SMs.
func TestBlocksToSMs(t *testing.T) {
	for blocks, want := range map[int64]share.PerMille{0: 0, 1: 1, 2: 1, 3: 2, 1999: 1000, 2000: 1000} {
		if got := blocksToSMs(blocks, 2000); got != want {
			t.Errorf("%d of 2000 blocks are %d per mille, want %d", blocks, got, want)
		}
	}
}
