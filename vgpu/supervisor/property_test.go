package supervisor_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// slice is a slice with a daemon that fails, and clients that come while it is open.
type slice struct {
	look supervisor.Look
}

func (s *slice) obey(t *testing.T, o supervisor.Orders) {
	switch o.Do {
	case supervisor.Start:
		if s.look.Daemon != supervisor.Absent || s.look.Clients > 0 {
			t.Fatalf("%+v: started", s.look)
		}
		s.look.Daemon = supervisor.Answers
	case supervisor.Stop, supervisor.Kill:
		if s.look.Daemon == supervisor.Absent || s.look.Clients > 0 {
			t.Fatalf("%+v: %s", s.look, o.Do)
		}
		s.look.Daemon, s.look.Fault = supervisor.Absent, false
	case supervisor.EndClients:
		if !s.look.Fault {
			t.Fatalf("%+v: clients ended", s.look)
		}
		s.look.Clients = 0
	}
}

// trouble changes what nobody ordered.
func (s *slice) trouble(random *rand.Rand) {
	switch random.IntN(12) {
	case 0:
		s.look.Daemon, s.look.Fault = supervisor.Absent, false
	case 1:
		s.look.Daemon, s.look.Fault = supervisor.Silent, false
	case 2:
		s.look.Fault = s.look.Daemon == supervisor.Answers
	case 3, 4:
		s.look.Clients = 0
	case 5:
		s.look.Wanted = !s.look.Wanted
	case 6:
		s.look.Bare = []int{random.IntN(3)}
	case 7:
		s.look.Bare = nil
	}
}

// TestRecovers lets things go wrong for a while. No order is one that the slice must not get; starts keep their distance;
// only a sound slice is open; and when nothing more goes wrong and the clients have ended, it is open within a bounded time.
func TestRecovers(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 1))
	for range 2000 {
		s, now := slice{look: supervisor.Look{Daemon: supervisor.Absent}}, time.Time{}
		sup, started := supervisor.New(config), time.Time{}.Add(-time.Hour)
		step := func() supervisor.Orders {
			now = now.Add(time.Second / 2)
			o := sup.Look(now, s.look)
			sound := s.look.Wanted && s.look.Daemon == supervisor.Answers && !s.look.Fault
			if o.Closed == "" && (!sound || len(o.Bare) > 0) {
				t.Fatalf("%+v: open", s.look)
			}
			if o.Do == supervisor.Stop && !s.look.Wanted {
				started = now.Add(-time.Hour) // it has not failed
			}
			if o.Do == supervisor.Start {
				if now.Sub(started) < config.FirstDelay {
					t.Fatalf("started twice within %v", now.Sub(started))
				}
				started = now
			}
			if s.obey(t, o); o.Closed == "" && random.IntN(2) == 0 {
				s.look.Clients++
			}
			return o
		}
		for range 60 {
			s.trouble(random)
			step()
		}
		s.look.Wanted, s.look.Bare, s.look.Clients = true, nil, s.look.Clients*random.IntN(2)
		if !s.look.Fault && s.look.Daemon != supervisor.Answers {
			s.look.Clients = 0 // nobody ends them, they end by themselves
		}
		limit := now.Add(2*config.Grace + config.Patience + config.LastDelay)
		for step().Closed != "" {
			if now.After(limit) {
				t.Fatalf("%+v: not open after %v", s.look, now.Sub(limit))
			}
		}
	}
}
