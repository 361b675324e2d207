package residency

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

var full = flag.Bool("full", false, "check 100,000 random interleavings (minutes), not 1,000")

const stepsPerRun = 600

// play runs one interleaving and returns the first violation.
func play(seed uint64, r rules) (violation string, counts map[string]int) {
	w := newWorld(seed, r)
	for range stepsPerRun {
		w.step()
		w.check()
		if w.violation != "" {
			return w.violation, w.counts
		}
	}
	w.settle()
	return w.violation, w.counts
}

// TestInterleavings lets eight functions with three times the memory of two slices have turns, while loads fail and hang, servers are killed, and
// the agent ends at any step and is restored. No slice has ever to hold more than its memory, no request is to be sent to a server that cannot
// answer it, none is to be taken from a server that has requests, and in the end each function answers.
func TestInterleavings(t *testing.T) {
	t.Parallel()
	runs := uint64(1000)
	if *full {
		runs = 100_000
	}
	counts := map[string]int{}
	for seed := range runs {
		violation, happened := play(seed, rulesOfPackage())
		if violation != "" {
			t.Fatalf("seed %d: %s", seed, violation)
		}
		for what, n := range happened {
			counts[what] += n
		}
	}
	for _, what := range []string{"load", "evict", "failed", "hung", "killed", "crash", "turn restored", "bound"} {
		if counts[what] < int(runs)/5 {
			t.Errorf("%s: %d in %d interleavings: the test tests little", what, counts[what], runs)
		}
	}
}

// mutants break one rule each. found is the kind of violation that random interleavings must find.
var mutants = map[string]struct {
	found  string
	mutate func(*rules)
}{
	"admits before it has evicted": {"memory", func(r *rules) {
		r.steps = func(n *Node) []Step {
			memory := map[*function]share.Bytes{}
			for _, f := range n.order {
				if f.place.state == evicting {
					memory[f], f.Memory = f.Memory, 0
				}
			}
			steps := n.Steps()
			for f, m := range memory {
				f.Memory = m
			}
			return steps
		}
	}},
	"takes the memory of a load that has failed for free": {"memory", func(r *rules) {
		r.failed = func(n *Node, now time.Duration, name string) {
			if n.functions[name].place.state == loading {
				n.Ended(now, name)
			}
		}
	}},
	"forgets after a restart what was moving": {"memory", func(r *rules) {
		r.restored = func(n *Node) {
			for _, f := range n.order {
				if f.place.state == evicting {
					f.place.leave()
				}
			}
		}
	}},
	"acts before it has saved":                {"memory requests", func(r *rules) { r.actsFirst = true }},
	"lets requests begin before it has saved": {"requests", func(r *rules) { r.leaseFirst = true }},
	"gives up an instance whose load has failed": {"lost", func(r *rules) {
		r.failed = func(n *Node, now time.Duration, name string) {
			_, _, _ = n.Failed(now, name)
			n.functions[name].place.retry = maxInstant
		}
	}},
}

// mostRuns bounds the interleavings in which a mutant must be found.
const mostRuns = 5000

// TestMutants holds that the interleavings find an agent that breaks a rule.
func TestMutants(t *testing.T) {
	t.Parallel()
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rulesOfPackage()
			m.mutate(&r)
			for seed := range uint64(mostRuns) {
				violation, _ := play(seed, r)
				if kind, _, ok := strings.Cut(violation, ":"); ok && strings.Contains(m.found, kind) {
					t.Logf("seed %d: %s", seed, violation)
					return
				}
			}
			t.Errorf("not found in %d interleavings", mostRuns)
		})
	}
}

// TestSnapshotAgain restores snapshots of random nodes: each says the same as what it was restored from, but for what was moving.
func TestSnapshotAgain(t *testing.T) {
	for seed := range uint64(20) {
		w := newWorld(seed, rulesOfPackage())
		for range stepsPerRun {
			w.step()
		}
		once, err := Restore(w.policy(), 0, w.agent.node.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		twice, err := Restore(w.policy(), time.Hour, once.Snapshot())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := string(twice.Snapshot()), string(once.Snapshot()); got != want {
			t.Fatalf("seed %d:\n%s\n%s", seed, got, want)
		}
	}
}
