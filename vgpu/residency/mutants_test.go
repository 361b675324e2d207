package residency

import (
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// mutants break one rule of the protocol each. found has the kinds of violation, of which random interleavings must find one.
var mutants = map[string]struct {
	found  string
	mutate func(*rules)
}{
	"scheduler counts only the wanted level": {"count", func(r *rules) {
		r.counted = func(w Wanted, _ Reached) Level { return w.Level }
	}},
	"scheduler counts nothing of a parked instance": {"count", func(r *rules) {
		r.kept = func(Reached) share.Bytes { return 0 }
	}},
	"agent does not record what a parked process keeps": {"record", func(r *rules) {
		r.next = func(i Instance, fits func(Level) bool) Step {
			i.Kept = 0
			return Next(i, fits)
		}
	}},
	"agent refuses to park before it has woken the process": {"request stuck", func(r *rules) {
		r.next = func(i Instance, fits func(Level) bool) Step {
			if i.CannotPark && i.Enforced == Unknown {
				i.Enforced = i.Record.Level
			}
			return Next(i, fits)
		}
	}},
	"scheduler counts only the reached level": {"count", func(r *rules) {
		r.counted = func(_ Wanted, reached Reached) Level { return reached.Level }
	}},
	"scheduler counts a pod that has not started at the wanted level": {"count", func(r *rules) {
		r.counted = func(w Wanted, reached Reached) Level { return max(w.Level, reached.Level) }
	}},
	rarelyHarmful: {"count", func(r *rules) {
		r.counted = func(w Wanted, reached Reached) Level {
			if reached.Level == Cold {
				return Hot
			}
			return max(w.Level, reached.Level)
		}
	}},
	"agent does not check its book at a start": {"overcommitted", func(r *rules) {
		r.start = func(w Wanted, _ func(Level) bool) (Reached, bool) { return Start(w, func(Level) bool { return true }) }
	}},
	"agent does not check its book for a raise": {"overcommitted", func(r *rules) {
		r.next = func(i Instance, _ func(Level) bool) Step { return Next(i, func(Level) bool { return true }) }
	}},
	"agent starts without its records": {"overcommitted", func(r *rules) { r.emptyBook = true }},
	"agent reports a reduction before it acts": {"count", func(r *rules) {
		r.next = func(i Instance, fits func(Level) bool) Step {
			answer := Reached{Seq: i.Wanted.Seq, Level: i.Wanted.Level}
			if answer.Level == Warm {
				answer.Memory = i.Kept
			}
			if step := Next(i, fits); step.Effect != Enforce || step.Level != i.Wanted.Level || i.Reached == answer || i.Wanted.Seq <= i.Record.Seq {
				return step
			}
			return Step{Effect: Report, Record: answer}
		}
	}},
	"agent reports a raise before it acts": {"request", func(r *rules) {
		r.next = func(i Instance, fits func(Level) bool) Step {
			if step := Next(i, fits); step.Effect != Enforce || i.Enforced == Unknown || i.Reached == i.Record || i.Record.Seq == 0 {
				return step
			}
			return Step{Effect: Report, Record: i.Record}
		}
	}},
	"agent records a reduction before it acts": {"record", func(r *rules) {
		r.next = func(i Instance, fits func(Level) bool) Step {
			if step := Next(i, fits); step.Effect != Enforce || i.Wanted.Seq <= i.Record.Seq || i.Enforced == Unknown {
				return step
			}
			return Step{Effect: Save, Record: Reached{Seq: i.Wanted.Seq, Level: i.Wanted.Level}}
		}
	}},
	"agent lifts the limit before it records": {"record", func(r *rules) {
		r.next = func(i Instance, fits func(Level) bool) Step {
			step := Next(i, fits)
			if step.Effect == Save && step.Record.Level > i.Record.Level && i.Enforced < step.Record.Level {
				return Step{Effect: Enforce, Level: step.Record.Level}
			}
			return step
		}
	}},
	"agent does not record a refusal": {"count", func(r *rules) {
		r.next = func(i Instance, fits func(Level) bool) Step {
			step := Next(i, fits)
			if step.Effect == Save && step.Record.Refused {
				step.Effect = Report
			}
			return step
		}
	}},
	"agent takes it that the last agent did all it had recorded": {"stuck", func(r *rules) {
		r.next = func(i Instance, fits func(Level) bool) Step {
			if i.Enforced == Unknown {
				i.Enforced = i.Record.Level
			}
			return Next(i, fits)
		}
	}},
	"agent answers at a start that an instance is Warm": {"stuck", func(r *rules) {
		r.start = func(w Wanted, fits func(Level) bool) (Reached, bool) {
			have, ok := Start(w, fits)
			have.Seq = w.Seq
			return have, ok
		}
	}},
	"agent acts on an old level": {"count request", func(r *rules) {
		r.next = func(i Instance, fits func(Level) bool) Step {
			if i.Record.Seq > i.Wanted.Seq && i.Wanted.Seq > 0 {
				i.Record.Seq = i.Wanted.Seq - 1
			}
			return Next(i, fits)
		}
	}},
	"agent refuses without a record and a report": {"stuck", func(r *rules) {
		r.next = func(i Instance, fits func(Level) bool) Step {
			step := Next(i, fits)
			if step.Effect == Save && step.Record.Refused {
				return Step{}
			}
			return step
		}
	}},
	"agent does not report a reduction": {"stuck", func(r *rules) {
		r.next = func(i Instance, fits func(Level) bool) Step {
			step := Next(i, fits)
			if step.Effect == Report && step.Record.Level < i.Reached.Level {
				return Step{}
			}
			return step
		}
	}},
	"agent parks before the gateways have stopped": {"request", func(r *rules) {
		r.next = func(i Instance, fits func(Level) bool) Step {
			i.Wanted.Drained = true
			return Next(i, fits)
		}
	}},
	"controller lowers a raise that is not answered": {"count", func(r *rules) {
		r.change = func(w Wanted, reached Reached, to Level) (Wanted, bool) {
			if to < w.Level && to > Cold && !w.Drained {
				return Wanted{Seq: w.Seq + 1, Level: to}, true
			}
			return Change(w, reached, to)
		}
	}},
	"controller raises a drained instance": {"request", func(r *rules) {
		r.change = func(w Wanted, reached Reached, to Level) (Wanted, bool) {
			if to > w.Level && w.Level > Cold {
				return Wanted{Seq: w.Seq + 1, Level: to}, true
			}
			return Change(w, reached, to)
		}
	}},
	"controller does not revert": {"stuck", func(r *rules) {
		r.review = func(w Wanted, reached Reached, replaced, drained bool) Task {
			if reached.Refused && reached.Level > Cold && reached.Answers(w) {
				return Task{}
			}
			return Review(w, reached, replaced, drained)
		}
	}},
	"controller reverts before it replaces": {"forgotten stuck", func(r *rules) {
		r.review = func(w Wanted, reached Reached, _, drained bool) Task { return Review(w, reached, true, drained) }
	}},
	"controller keeps Shared instances that are in the way": {"stuck", func(r *rules) { r.keepsShared = true }},
	"controller writes without a resourceVersion":           {"count request", func(r *rules) { r.blindWrites = true }},
	"controller does not ask the gateways": {"request", func(r *rules) {
		r.review = func(w Wanted, reached Reached, replaced, _ bool) Task { return Review(w, reached, replaced, true) }
	}},
	"controller lists the gateways before it writes": {"request", func(r *rules) { r.oldGateways = true }},
	"controller takes an answer to another level":    {"request", func(r *rules) { r.keepsAnswers = true }},
	"controller deletes without asking the gateways": {"request", func(r *rules) {
		r.review = func(w Wanted, reached Reached, replaced, drained bool) Task {
			return Review(w, reached, replaced, drained || w.Level == Cold)
		}
	}},
	"gateway sends before the level is reached": {"request", func(r *rules) {
		r.maySend = func(w Wanted, _ Reached) bool { return w.Level.Serves() }
	}},
	"gateway sends until the instance is parked": {"request", func(r *rules) {
		r.maySend = func(_ Wanted, reached Reached) bool { return reached.Level.Serves() }
	}},
	"gateway says it has stopped with requests in flight": {"request", func(r *rules) {
		r.stopped = func(seen, asked Wanted, _ int) bool { return hasStopped(seen, asked, 0) }
	}},
	"gateway says it has stopped before it has seen why": {"request", func(r *rules) {
		r.stopped = func(seen, asked Wanted, inFlight int) bool { return inFlight == 0 }
	}},
	"gateway lists the pods before it registers": {"request", func(r *rules) { r.listsFirst = true }},
	"gateway lists the pods from a cache":        {"request", func(r *rules) { r.staleGateway = true }},
}

// mostRuns bounds the interleavings in which a mutant must be found.
const mostRuns = 20_000

// TestMutants holds that each rule of the protocol is needed, and that the interleavings would find a participant that breaks it.
func TestMutants(t *testing.T) {
	t.Parallel()
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rulesOfPackage()
			m.mutate(&r)
			find(t, r, m.found)
		})
	}
}

// rarelyHarmful is the mutant that does harm in so few interleavings that TestMiscountsHarm tries it with -full only.
const rarelyHarmful = "scheduler counts a pod that is to be deleted at the reached level"

// TestMiscountsHarm holds that the mutants that make the scheduler count too little do harm: a pod is bound to a slice without room for it.
func TestMiscountsHarm(t *testing.T) {
	t.Parallel()
	for name, m := range mutants {
		if m.found != "count" || name == rarelyHarmful && !*full {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rulesOfPackage()
			m.mutate(&r)
			r.unchecked = true
			find(t, r, "lost")
		})
	}
}

// find runs interleavings until one has a violation of one of the kinds.
func find(t *testing.T, r rules, kinds string) {
	t.Helper()
	for at := uint64(1); at <= mostRuns; at++ {
		violation, _ := play(at, r, nil)
		if kind, _, ok := strings.Cut(violation, ":"); ok && strings.Contains(kinds, kind) {
			t.Logf("seed %d: %s", at, violation)
			return
		}
	}
	t.Errorf("not found in %d interleavings", mostRuns)
}
