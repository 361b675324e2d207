package residency

import (
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	full = flag.Bool("full", false, "check 500,000 random interleavings (minutes), not 3,000")
	seed = flag.Uint64("seed", 0, "show the interleaving with this seed")
)

const stepsPerRun = 500

// play runs one interleaving and returns the first violation.
func play(seed uint64, r rules, trace func(string, ...any)) (violation string, events map[string]int) {
	w := newWorld(seed, r)
	if trace != nil {
		w.trace = trace
	}
	for range stepsPerRun {
		w.step()
		w.check()
		if w.violation != "" {
			return w.violation, w.events
		}
	}
	w.trace("no more faults")
	w.settle()
	return w.violation, w.events
}

// TestInterleavings lets scheduler, agents, controller, gateways, kubelets and users take turns at random, crash at any step, see each
// other's writes late and lose their own. What the package promises must hold after each step, and in the end all must be settled.
func TestInterleavings(t *testing.T) {
	t.Parallel()
	runs := uint64(3000)
	if *full {
		runs = 500_000
	}
	first, last := uint64(1), runs
	if *seed > 0 {
		first, last = *seed, *seed
	}
	var next, failures atomic.Uint64
	next.Store(first)
	events := map[string]int{}
	var lock sync.Mutex // of events
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			mine := map[string]int{}
			for at := next.Add(1) - 1; at <= last && failures.Load() == 0; at = next.Add(1) - 1 {
				violation, happened := play(at, rulesOfPackage(), nil)
				if violation != "" {
					failures.Add(1)
					t.Errorf("%s\nrepeat with -run TestInterleavings -seed %d:\n%s", violation, at, transcript(at, rulesOfPackage()))
				}
				for event, n := range happened {
					mine[event] += n
				}
			}
			lock.Lock()
			defer lock.Unlock()
			for event, n := range mine {
				events[event] += n
			}
		})
	}
	workers.Wait()
	if *seed > 0 {
		t.Log(transcript(*seed, rulesOfPackage()))
		return
	}
	t.Logf("%d interleavings: %v", runs, events)
	for _, event := range []string{
		"agent restarts", "cannot be parked", "conflict", "controller restarts", "late write", "made Hot", "made Shared", "made Warm", "raise refused", "replaced",
		"request", "start lost to a raise", "start refused", "victim",
	} {
		if events[event] < int(runs)/100 && failures.Load() == 0 {
			t.Errorf("%q happened %d times in %d interleavings", event, events[event], runs)
		}
	}
}

// TestRaiseLetsWaitingPodsGoFirst compares how often a pod loses its start to a raise if the agent counts the pods that it knows to wait,
// and if it does not. No invariant needs that, but a user's pod that has lost waits until somebody gives way.
func TestRaiseLetsWaitingPodsGoFirst(t *testing.T) {
	t.Parallel()
	count := func(r rules) (lost int) {
		for at := range uint64(1000) {
			_, events := play(at, r, nil)
			lost += events["start lost to a raise"]
		}
		return lost
	}
	careless := rulesOfPackage()
	careless.ignoresQueued = true
	with, without := count(rulesOfPackage()), count(careless)
	t.Logf("%d starts are lost, %d if waiting pods do not count", with, without)
	if with >= without {
		t.Errorf("%d starts are lost, not fewer than the %d without the rule", with, without)
	}
}

// transcript returns what happens in the interleaving with a seed.
func transcript(seed uint64, r rules) string {
	var lines []string
	play(seed, r, func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) })
	return strings.Join(lines, "\n")
}
