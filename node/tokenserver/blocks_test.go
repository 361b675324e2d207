package tokenserver_test

import (
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// quarter is an elastic share that requests a quarter of the SMs and may use half of them.
var quarter = share.Share{SMRequest: 250, SMLimit: 500, QuotaRequest: 1000, QuotaLimit: 1000, Memory: gib}

func elastic(s *tokenserver.Spec) { s.VGPUs[0].Elastic = true }

func protected(s *tokenserver.Spec) { s.VGPUs[0].Priority = share.SLO }

// handClock is a clock that tests advance tick by tick.
type handClock struct {
	tokenserver.RealClock
	mu     sync.Mutex // guards the following
	now    time.Duration
	timers []*handTimer
}

type handTimer struct {
	clock *handClock
	fire  func()
	at    time.Duration // 0: not set
}

func (c *handClock) Now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// advance sets the clock forward without firing timers.
func (c *handClock) advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += by
}

func (c *handClock) NewTimer(fire func()) tokenserver.Timer {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &handTimer{clock: c, fire: fire}
	c.timers = append(c.timers, t)
	return t
}

func (t *handTimer) Set(at time.Duration) {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.at = at
}

func (t *handTimer) Stop() { t.Set(0) }

// tick advances the clock by 5 ms, fires the timers that are due, and returns their number.
func (c *handClock) tick() (fired int) {
	c.mu.Lock()
	c.now += 5 * time.Millisecond
	var due []*handTimer
	for _, t := range c.timers {
		if t.at > 0 && t.at <= c.now {
			t.at = 0
			due = append(due, t)
		}
	}
	c.mu.Unlock()
	for _, t := range due {
		t.fire()
	}
	return len(due)
}

func newElasticFixture(t testing.TB) (*fixture, *handClock) {
	t.Helper()
	clock := &handClock{now: time.Hour}
	return newFixture(t, tempDir(t), func(c *tokenserver.Config) { c.Clock = clock }), clock
}

// credit returns how many blocks a process may still take.
func credit(c *tokenclient.Client) int64 {
	return int64(c.VGPUs[0].Server.Credit.Load() - c.VGPUs[0].Container.Taken.Load())
}

// TestBlocks checks that all processes of an elastic share run at once on one credit, which each tick renews without carrying over
// the rest.
func TestBlocks(t *testing.T) {
	r, clock := newElasticFixture(t)
	served := r.add(t, "a", quarter, elastic, protected)
	a, b := r.dial(t, "a"), r.dial(t, "a")
	page := a.VGPUs[0].Server
	if a.Welcome.Mode != tokenwire.ModeBlocks || page.Unit.Load() != tokenwire.UnitBlocks || page.Guaranteed.Load() != 500 {
		t.Errorf("mode %v, unit %d, guaranteed %d", a.Welcome.Mode, page.Unit.Load(), page.Guaranteed.Load())
	}
	a.VGPUs[0].Client.Busy.Add(1_000_000_000) // before it came here
	for range 40 {                            // then all the time: that is worth its cap, of which alone it has twice as much
		a.VGPUs[0].Container.Taken.Add(900)
		b.VGPUs[0].Container.Taken.Add(100)
		a.VGPUs[0].Client.Busy.Add(5_000_000)
		clock.tick()
		if state(a) != tokenwire.Run || state(b) != tokenwire.Run {
			t.Fatal("they do not run at once")
		}
	}
	for _, take := range []int64{700, 0, 1, 1000} {
		a.VGPUs[0].Container.Taken.Add(uint64(take))
		if left := credit(b); left != 2000-take {
			t.Errorf("%d blocks are left for the other process after %d", left, take)
		}
		clock.tick()
		if left := credit(a); left != 2000 || page.Amount.Load() != 2000 {
			t.Errorf("%d blocks of 2000 after a tick in which %d were taken", left, take)
		}
	}
	if status := served.Status().VGPUs[0]; status.CurrentSMs != 500 || status.Blocks != 2000 {
		t.Errorf("it has %v by %d blocks", status.CurrentSMs, status.Blocks)
	}
	if got := time.Duration(page.Deadline.Load()); got != clock.Now()+5*time.Millisecond {
		t.Errorf("the next tick is said to be at %v, now is %v", got, clock.Now())
	}
}

// TestIdleSliceOfBlocks checks that a slice without launches is stepped only for heartbeats, and that a launch wakes it.
func TestIdleSliceOfBlocks(t *testing.T) {
	r, clock := newElasticFixture(t)
	r.add(t, "a", quarter, elastic)
	a := r.dial(t, "a")
	fired := 0
	for i := range 400 {
		if n := clock.tick(); i >= 200 {
			fired += n
		}
	}
	if fired > 21 || a.VGPUs[0].Server.Deadline.Load() != 0 {
		t.Errorf("%d steps in an idle second", fired)
	}
	taken, before := credit(a), a.VGPUs[0].Server.Sequence.Load()
	a.VGPUs[0].Container.Taken.Add(uint64(taken))
	if err := a.Send(&tokenwire.Need{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "new blocks", func() bool { return credit(a) > 0 && a.VGPUs[0].Server.Sequence.Load() > before })
}

// TestHookWithoutBlocks checks that a hook which supports time tokens only is refused: it would not limit an elastic share at all.
func TestHookWithoutBlocks(t *testing.T) {
	r, _ := newElasticFixture(t)
	r.add(t, "a", quarter, elastic)
	conn := connect(t, r, "a")
	if _, err := conn.Write(encode(t, &tokenwire.Hello{HookVersion: 1})); err != nil {
		t.Fatal(err)
	}
	if got := answer(t, conn); got != syscall.EPROTONOSUPPORT {
		t.Errorf("got %v", got)
	}
	if n := r.Counters().Refused[tokenserver.Outdated]; n != 1 {
		t.Errorf("counted %d times", n)
	}
}

// TestSliceChangesClassOnlyWhenEmpty checks that time and block tokens never share a slice.
func TestSliceChangesClassOnlyWhenEmpty(t *testing.T) {
	r, _ := newElasticFixture(t)
	first := r.add(t, "a", quarter, elastic)
	spec := tokenserver.Spec{ID: "b", Dir: filepath.Join(r.dir, "b"), VGPUs: []tokenserver.VGPU{{Share: half, Slice: r.slice, UUID: "GPU-0"}}}
	if _, err := r.AddContainer(spec); err == nil {
		t.Error("time tokens beside block tokens")
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := r.AddContainer(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Resize(500); !errors.Is(err, tokenserver.ErrFixed) {
		t.Errorf("the SMs of a share of time were moved: %v", err)
	}
}

// TestForgedBlocks writes random values to the pages of one share, and checks that its neighbour keeps running and its own limit
// holds.
func TestForgedBlocks(t *testing.T) {
	r, clock := newElasticFixture(t)
	liar := r.add(t, "liar", quarter, elastic, protected)
	r.add(t, "honest", quarter, elastic)
	a, b := r.dial(t, "liar"), r.dial(t, "honest")
	random := rand.New(rand.NewPCG(1, 2))
	words := []interface{ Store(uint64) }{
		&a.VGPUs[0].Container.Taken, &a.VGPUs[0].Client.Cycles, &a.VGPUs[0].Client.CycleStart, &a.VGPUs[0].Client.CycleTimes[3],
		&a.VGPUs[0].Client.Blocks, &a.VGPUs[0].Client.Busy, &a.VGPUs[0].Client.Open, &a.VGPUs[0].Client.LastLaunch,
	}
	dry := 0 // ticks
	for range 5000 {
		for range random.IntN(3) {
			words[random.IntN(len(words))].Store(random.Uint64() >> random.IntN(64))
		}
		if dry++; credit(b) > 0 {
			b.VGPUs[0].Container.Taken.Add(100)
			dry = 0
		}
		clock.tick()
		if dry > 200 {
			t.Fatal("the neighbour had no block for a second")
		}
		if sms := liar.Status().VGPUs[0].CurrentSMs; sms > 500 {
			t.Fatalf("it has %v", sms)
		}
	}
}
