package supervisor_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// slice simulates a slice with a daemon that fails, and clients that arrive while it is open.
type slice struct {
	observation supervisor.Observation
}

// perform applies a decision, and fails the test if it must not be made.
func (s *slice) perform(t *testing.T, d supervisor.Decision) {
	switch d.Action {
	case supervisor.Start:
		if s.observation.Daemon != supervisor.Absent || s.observation.Clients > 0 {
			t.Fatalf("%+v: started", s.observation)
		}
		s.observation.Daemon = supervisor.Answers
	case supervisor.Stop, supervisor.Kill:
		if s.observation.Daemon == supervisor.Absent || s.observation.Clients > 0 {
			t.Fatalf("%+v: %s", s.observation, d.Action)
		}
		s.observation.Daemon, s.observation.Fault = supervisor.Absent, false
	case supervisor.EndClients:
		if !s.observation.Fault {
			t.Fatalf("%+v: clients ended", s.observation)
		}
		s.observation.Clients = 0
	}
}

// disturb changes the slice at random.
func (s *slice) disturb(random *rand.Rand) {
	switch random.IntN(12) {
	case 0:
		s.observation.Daemon, s.observation.Fault = supervisor.Absent, false
	case 1:
		s.observation.Daemon, s.observation.Fault = supervisor.Silent, false
	case 2:
		s.observation.Fault = s.observation.Daemon == supervisor.Answers
	case 3, 4:
		s.observation.Clients = 0
	case 5:
		s.observation.Wanted = !s.observation.Wanted
	case 6:
		s.observation.NonMPS = []int{random.IntN(3)}
	case 7:
		s.observation.NonMPS = nil
	}
}

// TestRecovers disturbs slices for a while. No decision harms clients, starts keep their delay, and only a healthy slice is open. Once the
// disturbance and the clients have ended, it is open within a bounded time.
func TestRecovers(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 1))
	for range 2000 {
		s, now := slice{observation: supervisor.Observation{Daemon: supervisor.Absent}}, time.Time{}
		sup, started := supervisor.New(config), time.Time{}.Add(-time.Hour)
		step := func() supervisor.Decision {
			now = now.Add(time.Second / 2)
			d := sup.Decide(now, s.observation)
			healthy := s.observation.Wanted && s.observation.Daemon == supervisor.Answers && !s.observation.Fault
			if d.Closed == "" && (!healthy || len(d.NonMPS) > 0) {
				t.Fatalf("%+v: open", s.observation)
			}
			if d.Action == supervisor.Stop && !s.observation.Wanted {
				started = now.Add(-time.Hour) // it has not failed
			}
			if d.Action == supervisor.Start {
				if now.Sub(started) < config.FirstDelay {
					t.Fatalf("started twice within %v", now.Sub(started))
				}
				started = now
			}
			if s.perform(t, d); d.Closed == "" && random.IntN(2) == 0 {
				s.observation.Clients++
			}
			return d
		}
		for range 60 {
			s.disturb(random)
			step()
		}
		s.observation.Wanted, s.observation.NonMPS, s.observation.Clients = true, nil, s.observation.Clients*random.IntN(2)
		if !s.observation.Fault && s.observation.Daemon != supervisor.Answers {
			s.observation.Clients = 0 // no action ends them, they end by themselves
		}
		limit := now.Add(2*config.Grace + config.Patience + config.LastDelay)
		for step().Closed != "" {
			if now.After(limit) {
				t.Fatalf("%+v: not open after %v", s.observation, now.Sub(limit))
			}
		}
	}
}
