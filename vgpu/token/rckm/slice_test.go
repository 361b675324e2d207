package rckm

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

func TestRefused(t *testing.T) {
	for _, d := range []time.Duration{-1, time.Microsecond, time.Second} {
		if _, err := New(Config{Tick: d}); err == nil {
			t.Errorf("a tick of %v was accepted", d)
		}
	}
	good := Member{ID: 1, Priority: share.SLO, Request: 300, Limit: 600, MaxTokens: 1000}
	for name, spoil := range map[string]func(*Member){
		"class":   func(m *Member) { m.Priority = "" },
		"request": func(m *Member) { m.Request = 0 },
		"limit":   func(m *Member) { m.Limit = 299 },
		"whole":   func(m *Member) { m.Limit = 1001 },
		"tokens":  func(m *Member) { m.MaxTokens = -1 },
		"endless": func(m *Member) { m.MaxTokens = maxBlocks + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			s := newMachine(t, Config{})
			m := good
			spoil(&m)
			if err := s.Join(0, m); err == nil {
				t.Errorf("%+v was accepted", m)
			}
		})
	}
	for name, m := range map[string]Member{
		"least": {ID: 1, Priority: share.SLO, Request: 1, Limit: 1},
		"most":  {ID: 1, Priority: share.BestEffort, Request: 1000, Limit: 1000, MaxTokens: maxBlocks},
	} {
		if err := newMachine(t, Config{}).Join(0, m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for tick, ok := range map[time.Duration]bool{time.Millisecond - 1: false, time.Millisecond: true, 100 * ms: true, 100*ms + 1: false} {
		if _, err := New(Config{Tick: tick}); (err == nil) != ok {
			t.Errorf("a tick of %v: %v", tick, err)
		}
	}
	s := newMachine(t, Config{})
	if err := errors.Join(s.Join(0, good), s.Resize(0, 1, 300)); err != nil {
		t.Fatal(err)
	}
	if err := s.Join(0, good); !errors.Is(err, token.ErrKnown) {
		t.Error("joined twice:", err)
	}
	for name, err := range map[string]error{
		"leave": s.Leave(0, 2), "report": s.Report(0, 2, Launches{}), "resize": s.Resize(0, 2, 300),
	} {
		t.Run(name, func(t *testing.T) {
			if !errors.Is(err, token.ErrUnknown) {
				t.Errorf("unknown member: %v", err)
			}
		})
	}
	if s.MaxTokens(1) != 1000 || s.MaxTokens(2) != 0 {
		t.Errorf("MaxTokens are %d and %d", s.MaxTokens(1), s.MaxTokens(2))
	}
}

// TestSleep checks that a slice without launches needs no calls, and that a launch wakes it.
func TestSleep(t *testing.T) {
	m := taught(t)
	m.loads = nil
	m.until(10*time.Second, func(time.Duration) {})
	if m.next != token.Never {
		t.Errorf("an idle slice wants to be called at %v", m.next)
	}
	if err := m.Report(20*time.Second, 2, Launches{Blocks: 10, First: 20 * time.Second, Last: 20 * time.Second}); err != nil {
		t.Fatal(err)
	}
	if changes := m.advance(20 * time.Second); m.next != 20*time.Second+tick || len(changes) != 1 {
		t.Errorf("awake it wants to be called at %v, with changes %v", m.next, changes)
	}
}

// TestReference checks that one short request does not stay the reference for good (D18), as it does in the paper.
func TestReference(t *testing.T) {
	var c launchCycles
	for k, length := range []time.Duration{30, 5, 30, 31, 30, 32, 30, 30, 30, 31, 30, 30} {
		from := time.Duration(k) * 100 * ms
		c.addTick(from+50*ms, Launches{Blocks: 1, First: from, Last: from + length*ms}, false, time.Second)
		c.addTick(from+60*ms, Launches{}, false, time.Second)
	}
	if c.reference != 30*ms || c.shortest != 5*ms {
		t.Errorf("the reference is %v, the least ever %v", c.reference, c.shortest)
	}
	c = launchCycles{}
	c.addTick(5*ms, Launches{Blocks: 1, Last: 5 * ms}, false, 50*ms)
	c.addTick(10*ms, Launches{Busy: true}, false, 50*ms)
	c.addTick(15*ms, Launches{}, true, 50*ms)
	if !c.open || c.longest().length != 15*ms {
		t.Errorf("a cycle whose work is not done, or held back, ended: %+v", c)
	}
	c.addTick(50*ms, Launches{Blocks: 1, First: 45 * ms, Last: 50 * ms}, false, 50*ms)
	if c.open || c.latest.length != 50*ms {
		t.Errorf("a cycle went on beyond the longest: %+v", c)
	}
}

// TestBatchesLaunchedUpFront checks that a batch which began in the tick in which another one ended belongs to the same cycle, although the share
// launches nothing more until it ends, as with a CUDA graph.
func TestBatchesLaunchedUpFront(t *testing.T) {
	var c launchCycles
	c.addTick(5*ms, Launches{Blocks: 1, First: 5 * ms, Last: 5 * ms, Busy: true}, false, time.Second)
	for now := 10 * ms; now <= 100*ms; now += 5 * ms {
		l := Launches{Busy: true}
		if now%(30*ms) == 0 {
			l = Launches{Blocks: 1, First: now, Last: now, Busy: true, Batch: 30 * ms}
		}
		c.addTick(now, l, false, time.Second)
	}
	if got := c.longest(); !c.open || got.length != 100*ms || got.usual() != 30*ms || c.reference != 30*ms {
		t.Errorf("%+v of %+v", got, c)
	}
}

// TestLastToken checks that a share with one token left still has a token, and without any has none.
func TestLastToken(t *testing.T) {
	m := &member{Member: Member{ID: 1}, balance: 1}
	s := &Slice{members: []*member{m}}
	if got := s.changes(); len(got) != 1 || got[0].Kind != token.Grant || got[0].Token.Amount != 1 {
		t.Errorf("with one token: %v", got)
	}
	m.balance = 0
	if got := s.changes(); len(got) != 1 || got[0].Kind != token.Revoke {
		t.Errorf("with none: %v", got)
	}
	if got := (Observation{WholeSlice: 5}).BlocksOf(1); got != 1 {
		t.Errorf("a thousandth of 5 blocks is %d, want at least 1", got)
	}
}

// TestReferences checks which batches become the reference: the first undisturbed one, then as many of another length as it counts for, but at
// once the usual length where the reference was longer.
func TestReferences(t *testing.T) {
	const lasting = referenceCycles/2 + 1
	of := func(n int, batch time.Duration) []time.Duration { return slices.Repeat([]time.Duration{batch}, n) }
	for name, c := range map[string]struct {
		batches   []time.Duration // in ms; a negative one is slowed down by neighbours
		reference time.Duration   // in ms
	}{
		"one":                  {of(1, 40), 40},
		"slowed down":          {of(9, -60), 0},
		"and one that was not": {append(of(9, -60), 40), 40},
		"longer from now on":   {append(of(1, 40), of(lasting-1, 50)...), 40},
		"and for good":         {append(of(1, 40), of(lasting, 50)...), 50},
		"slowed down for good": {append(of(1, 40), of(3*lasting, -50)...), 40},
		"far more to do":       {append(of(1, 40), of(lasting, -160)...), 160},
		"slow at the start":    {append(of(1, 400), of(referenceCycles-1, -40)...), 40},
		"a little too slow":    {append(of(1, 76), of(referenceCycles-1, -40)...), 40},
		"nearly right":         {append(of(1, 46), of(3*referenceCycles, -40)...), 46},
		"mostly long ones":     {slices.Repeat([]time.Duration{100, -35, -100, -100, -35, -100, -100}, 20), 100},
	} {
		t.Run(name, func(t *testing.T) {
			m, now := &member{Member: Member{ID: 1, Request: 500, Limit: 500}}, time.Duration(0)
			for _, length := range c.batches {
				now += time.Second
				m.tick.Batch = max(length, -length) * ms
				m.endTick(now, 1, length > 0, tick)
			}
			if m.cycles.reference != c.reference*ms {
				t.Errorf("the reference is %v, want %v", m.cycles.reference, c.reference*ms)
			}
		})
	}
}
