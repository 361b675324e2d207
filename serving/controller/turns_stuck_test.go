package controller

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// startedTurns starts functions one after another on a slice. The last one has the turn.
func startedTurns(t *testing.T, functions ...string) (s *turnSlice, failed *[]string) {
	s = newTurnSlice(t)
	failed = s.drain(t.Context())
	for _, name := range functions {
		s.create(name)
		s.ticks(30, func() bool { return s.levels()[name] == residency.Hot && s.reached(name) == residency.Hot })
	}
	return s, failed
}

// reached returns the highest level that a replica of a function has.
func (s *turnSlice) reached(function string) (level residency.Level) {
	for _, p := range s.all() {
		if _, r, _ := kube.ResidencyOf(&p); p.Labels[api.LabelFunction] == function {
			level = max(level, r.Level)
		}
	}
	return level
}

// TestTurnOfOneThatDoesNotWake: a parked server that does not take its memory back, although its container is always Ready, does not keep the turn.
func TestTurnOfOneThatDoesNotWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, failed := startedTurns(t, "a", "b")
		s.sleeps = "a"
		s.ask(5, "a")
		s.ticks(60, func() bool { return s.levels()["a"] == residency.Hot })
		s.ask(5, "b")
		for range 5 {
			s.tick()
		}
		if len(*failed) != 0 {
			t.Errorf("failed at once: %q", *failed)
		}
		time.Sleep(turnPolicy.Begin)
		s.ticks(30, func() bool { return s.served["b"] > 0 })
		if len(*failed) != 1 || !strings.Contains((*failed)[0], "does not take its memory again") {
			t.Errorf("failed: %q", *failed)
		}
	})
}

// TestTurnOfOneThatLoadsForLong: if a server's startupProbe lets it take longer to start, it may take as long to begin the turn in which it starts, even if it
// has started but is not Ready yet. That does not apply to later turns, after it was parked, in which it loads nothing.
func TestTurnOfOneThatLoadsForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTurnSlice(t, "a")
		s.drain(t.Context())
		s.ticks(5, func() bool { return s.levels()["a"] == residency.Hot })
		p := s.one()
		p.Status.Conditions = nil // not Ready
		for allowed, probe := range map[time.Duration]*v1.Probe{0: nil, 20 * time.Minute: {InitialDelaySeconds: 600, PeriodSeconds: 10, FailureThreshold: 60}} {
			p.Spec.Containers[0].StartupProbe, p.Status.ContainerStatuses = probe, nil
			one, last := s.turns.look(0, "starts", placedInstance{}, p)
			if one.Stage != residency.Beginning || one.Begin != allowed {
				t.Errorf("it is in stage %v and may take %v longer, want %v", one.Stage, one.Begin, allowed)
			}
			started := true
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: p.Spec.Containers[0].Name, Started: &started}}
			s.turns.known["starts"] = last
			if one, _ := s.turns.look(0, "starts", placedInstance{}, p); one.Begin != allowed {
				t.Errorf("once it has started it may take %v longer, want %v", one.Begin, allowed)
			}
			delete(s.turns.known, "starts")
			if one, _ := s.turns.look(0, "was parked", placedInstance{}, p); one.Stage != residency.Beginning || one.Begin != 0 {
				t.Errorf("one that was parked is in stage %v and may take %v longer", one.Stage, one.Begin)
			}
		}
	})
}

// TestTurnOfOneWhoseResidencyWasChanged: whatever a tenant writes on their pod, other pods get their turns.
func TestTurnOfOneWhoseResidencyWasChanged(t *testing.T) {
	for name, text := range map[string]string{"malformed": "Hot", "to be deleted": `{"v":1,"residency":{"seq":9,"level":"Cold"}}`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, failed := startedTurns(t, "a", "b")
				s.ask(5, "a")
				s.edited = true
				for _, p := range s.all() {
					if p.Labels[api.LabelFunction] == "b" {
						s.update(&p, func(p *v1.Pod) { setAnnotation(&p.ObjectMeta, kube.AnnotationResidency, text) })
					}
				}
				s.tick()
				time.Sleep(turnPolicy.Begin)
				s.ticks(30, func() bool { return s.served["a"] > 0 })
				if len(*failed) != 1 || !strings.Contains((*failed)[0], kube.AnnotationResidency) {
					t.Errorf("failed: %q", *failed)
				}
			})
		})
	}
}

// TestTurnOfOneThatIsNotReadyAtTimes: a server whose probe fails every few seconds does not get longer turns than others.
func TestTurnOfOneThatIsNotReadyAtTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := startedTurns(t, "a", "b")
		s.ask(10_000, "b")
		s.ask(5, "a")
		seconds := 0
		s.ticks(60, func() bool {
			seconds++
			for _, p := range s.all() {
				if p.Labels[api.LabelFunction] == "b" {
					s.update(&p, func(p *v1.Pod) {
						if p.Status.Conditions = nil; seconds%4 != 0 {
							makeReady(p)
						}
					})
				}
			}
			return s.served["a"] > 0
		})
	})
}

// TestTurnOfReplacement: a replica starts even if it replaces one of the same function that always has requests in flight.
func TestTurnOfReplacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := startedTurns(t, "a")
		s.busy["a"] = 1
		s.createReplica("a", 2)
		s.ticks(60, func() bool {
			all := s.all()
			return len(all) == 2 && started(&all[0]) && started(&all[1])
		})
	})
}

func started(p *v1.Pod) bool {
	_, r, _ := kube.ResidencyOf(p)
	return r.Level != residency.Cold
}

// TestTurnOfOneWhoseFunctionHasChanged: a replica of class swap that an earlier leader left continues to take turns, although its function now has another
// class.
func TestTurnOfOneWhoseFunctionHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := startedTurns(t, "a", "b")
		for _, p := range s.all() {
			if p.Labels[api.LabelFunction] == "b" {
				f := function(t, func(f *api.GPUFunction) { f.Name = "b" })
				i := instanceOfFunction(f, 1)
				s.pods.Adopt(i, &p)
				s.pods.Report(i.Name)
			}
		}
		s.ask(1000, "b")
		s.ask(5, "a")
		s.ticks(60, func() bool { return s.served["a"] > 0 })
	})
}

// TestTurnOfOneThatIsNotDrained: a request that does not end, or an unreachable gateway, keeps others from their turns only for a limited time.
func TestTurnOfOneThatIsNotDrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, failed := startedTurns(t, "a", "b")
		s.pods.waitStopped = func(ctx context.Context, _ gateway.FunctionName, _ string, _ int64) error {
			<-ctx.Done()
			return ctx.Err()
		}
		s.ask(5, "a")
		s.ticks(30, func() bool { return s.levels()["b"] == residency.Warm })
		s.tick()
		if len(*failed) != 0 || s.reached("b") != residency.Hot {
			t.Errorf("it has %v; failed: %q", s.reached("b"), *failed)
		}
		time.Sleep(leaveLimit)
		s.ticks(30, func() bool { return s.served["a"] > 0 })
		if len(*failed) != 1 || !strings.Contains((*failed)[0], "within 5m0s") {
			t.Errorf("failed: %q", *failed)
		}
	})
}

// TestTurnThatIsRefused: a turn for which the agent has no room is not requested again at once, however soon the agent responds.
func TestTurnThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := startedTurns(t, "a", "b")
		s.refuses = "a"
		s.ask(5, "a")
		before := s.writes
		for range 60 {
			s.tick()
		}
		if writes := s.writes - before; writes < 4 || writes > 20 {
			t.Errorf("%d writes within a minute", writes)
		}
	})
}
