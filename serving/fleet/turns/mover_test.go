package turns

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/pipeline/residency"
	"github.com/gshare-dev/gshare/serving/swap"
)

// TestLoadAfterEnd loads a function again as soon as it is known that its server has failed, before the mover has noted that.
func TestLoadAfterEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlatform(t)
		m := newMover(p, slog.New(slog.DiscardHandler))
		m.add("f", functions(t, 1)[0])
		again := make(chan error, 1)
		m.ended = func(string) {
			go func() { again <- m.Load(t.Context(), "f", "gpu0") }()
			time.Sleep(ms)
		}
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan struct{})
		go func() { defer close(watched); m.watch(ctx) }()
		if err := m.Load(t.Context(), "f", "gpu0"); err != nil {
			t.Fatal(err)
		}
		p.kill()
		if err := <-again; err != nil || m.stateOf("f").starts != 2 {
			t.Errorf("%v, %d starts", err, m.stateOf("f").starts)
		}
		m.endAll()
		cancel()
		<-watched
	})
}

// TestLoadLimit: a server that does not become ready has five minutes beside what its startup probe allows.
func TestLoadLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlatform(t)
		p.hangs = true
		m := newMover(p, slog.New(slog.DiscardHandler))
		object := functions(t, 1)[0]
		object.Container().StartupProbe = &v1.Probe{InitialDelaySeconds: 5, PeriodSeconds: 10, FailureThreshold: 60}
		m.add("f", object)
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan struct{})
		go func() { defer close(watched); m.watch(ctx) }()
		began := time.Now()
		if err := m.Load(t.Context(), "f", "gpu0"); err == nil || time.Since(began) != 15*time.Minute+5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		m.endAll()
		cancel()
		<-watched
	})
}

// fixed is a gateway that has counted the same all the time.
type fixed struct {
	Gateway
	load gateway.Load
}

func (f fixed) Load(gateway.FunctionName) gateway.Load { return f.load }

// TestIsOver says when a turn ends: one for which another function waits when its time or its requests are used up, and others when they are not used.
func TestIsOver(t *testing.T) {
	const first = 10 // requests that had begun before the turn
	for name, c := range map[string]struct {
		load    gateway.Load
		waiting int
		bound   residency.Lease
		idle    time.Duration
		over    bool
	}{
		"in use":                              {load: gateway.Load{Answered: 30, InFlight: 1}},
		"not used for a moment":               {load: gateway.Load{Answered: 30}, idle: idleEnd / 2},
		"not used":                            {load: gateway.Load{Answered: 30}, idle: idleEnd, over: true},
		"has time":                            {load: gateway.Load{Answered: 30, InFlight: 1}, waiting: 1, bound: residency.Lease{Requests: 64, Until: time.Hour}},
		"has time, and is not used":           {load: gateway.Load{Answered: 30}, bound: residency.Lease{Requests: 64, Until: time.Hour}, over: true},
		"has had its time":                    {load: gateway.Load{Answered: 30, InFlight: 1}, waiting: 1, bound: residency.Lease{Requests: 64}, over: true},
		"has had its requests":                {load: gateway.Load{Answered: 83, InFlight: 1}, waiting: 1, bound: residency.Lease{Requests: 64, Until: time.Hour}, over: true},
		"is late, and none has begun":         {load: gateway.Load{Answered: first}, waiting: 1, bound: residency.Lease{Requests: 64}},
		"has one that hung before the turn":   {load: gateway.Load{Answered: first - 1, InFlight: 1}, bound: residency.Lease{Requests: 64}, over: true},
		"has ones that are to be sent again":  {load: gateway.Load{Answered: 17}, waiting: 3, bound: residency.Lease{Requests: 64, Until: time.Hour}},
		"is alone, with one that is answered": {load: gateway.Load{Answered: first, InFlight: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			turns := &Turns{Config: Config{Gateway: fixed{load: c.load}}, swap: swap.New(swap.Config{})}
			now := time.Now()
			fn := &function{turn: &turn{lease: c.bound, first: first, begun: 20}}
			if c.idle > 0 {
				fn.turn.idle = now.Add(-c.idle)
			}
			if got := turns.isOver(fn, c.waiting, now); got != c.over {
				t.Errorf("got %v, want %v", got, c.over)
			}
		})
	}
}

// TestStatus says of a function whose server does not start why, and of others how long they had a GPU.
func TestStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, stop := start(t, 2)
		w.failFirst = true
		answer := make(chan int, 1)
		go func() { answer <- w.ask("f0") }()
		time.Sleep(500 * ms)
		if s := w.turns.Status()[0]; s.Reason != "Failing" || s.Message != "exited" || s.Failures != 1 || s.Ready {
			t.Errorf("after a failure: %+v", s)
		}
		if status := <-answer; status != http.StatusOK {
			t.Errorf("status %d", status)
		}
		for range 120 { // one each 95 ms, of which it is unused for less than idleEnd
			time.Sleep(idleEnd - 15*ms)
			w.ask("f0")
		}
		s := w.turns.Status()
		if s[0].Reason != "Serving" || s[0].Message != "" || s[0].Replicas["ready"] != 1 || s[0].Rate < 10 || s[0].Rate > 11 || s[0].GPUTime < 11*time.Second {
			t.Errorf("%+v", s[0])
		}
		if s[1].Reason != "Idle" || len(s[1].Replicas) > 0 || s[1].Rate != 0 || s[1].GPUTime != 0 {
			t.Errorf("never asked: %+v", s[1])
		}
		stop()
	})
}
