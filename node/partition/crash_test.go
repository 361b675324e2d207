package partition_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// disturbed plays a scenario once for each moment, with a disturbance at that moment, and returns an error for the first outcome that differs
// from the undisturbed one.
func disturbed(m *mig.Model, script []string, setup setup, d disturbance) (moments int, err error) {
	calm, err := play(m, script, setup, d)
	if err != nil {
		return 0, err
	}
	for at := range calm.moment {
		w, err := play(m, script, setup, d, at)
		if err != nil {
			return at, fmt.Errorf("disturbed at moment %d: %w", at, err)
		}
		if got, want := w.outcome(), calm.outcome(); got != want {
			return at, fmt.Errorf("disturbed at moment %d: got\n%s\nwant\n%s", at, got, want)
		}
	}
	return calm.moment, nil
}

var scenarios = map[string][]string{
	"one":             {"obtain 1g.10gb@6"},
	"fill and refuse": {"obtain 4g.40gb@0", "obtain 2g.20gb@4", "obtain 1g.10gb@6", "obtain 1g.10gb@5", "obtain 7g.80gb@0"},
	"reclaim all":     {"obtain 1g.10gb@6", "obtain 1g.10gb@4", "obtain 2g.20gb@0", "release 0", "release 0", "release 0", "obtain 7g.80gb@0"},
	"reclaim some":    {"obtain 3g.40gb@4", "obtain 3g.40gb@0", "start 1", "release 1", "release 0", "obtain 1g.10gb@6", "obtain 4g.40gb@0", "obtain 7g.80gb@0"},
	"restart":         {"obtain 2g.20gb@4", "obtain 1g.10gb@6", "restart", "release 0", "obtain 3g.40gb@0", "restart", "obtain 4g.40gb@0"},
	"foreign":         {"foreign 1g.10gb@0 1", "foreign 3g.40gb@4 1 2", "obtain 1g.10gb@0", "release 0", "obtain 2g.20gb@2", "release 0", "obtain 4g.40gb@0", "obtain 1g.10gb@3"},
	"reboot":          {"obtain 3g.40gb@4", "obtain 1g.10gb+me@0", "reboot", "foreign 3g.40gb@4 3", "obtain 3g.40gb@4", "obtain 1g.10gb+me@0", "release 0", "obtain 4g.40gb@0"},
	"media engines":   {"obtain 1g.10gb+me@6", "obtain 1g.10gb@4", "release 0", "obtain 7g.80gb@0", "obtain 1g.10gb+me@0", "release 0", "obtain 1g.20gb@4"},
}

// TestCrashes: a crash or a failure at any moment changes no outcome.
func TestCrashes(t *testing.T) {
	runs := 0
	for name, script := range scenarios {
		for kind, d := range map[string]disturbance{"crash": crashes, "failure": failures} {
			for way, setup := range map[string]setup{"direct": direct, "NVML": overNVML} {
				t.Run(fmt.Sprintf("%s, %s, %s", name, kind, way), func(t *testing.T) {
					moments, err := disturbed(model(t), script, setup, d)
					if err != nil || moments < 8 {
						t.Errorf("%d moments: %v", moments, err)
					}
					runs += moments
				})
			}
		}
	}
	t.Logf("%d disturbed runs", runs)
}

// TestCrashTwice: a second crash, of the next agent, changes no outcome either.
func TestCrashTwice(t *testing.T) {
	runs := 0
	for name, script := range scenarios {
		calm, err := play(model(t), script, direct, crashes)
		if err != nil {
			t.Fatal(err)
		}
		for first := range calm.moment {
			for second := first + 1; second < calm.moment; second++ {
				w, err := play(model(t), script, direct, crashes, first, second)
				if err != nil || w.outcome() != calm.outcome() {
					t.Fatalf("%s, crashes at %d and %d: %v, got\n%s\nwant\n%s", name, first, second, err, w.outcome(), calm.outcome())
				}
				runs++
			}
		}
	}
	t.Logf("%d disturbed runs", runs)
}

// TestCrashesAtRandom: neither do crashes and failures in random scenarios.
func TestCrashesAtRandom(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 1))
	all := 0
	for range 100 {
		m := mig.Models()[random.IntN(len(mig.Models()))]
		script := randomScript(random, m)
		for _, d := range []disturbance{crashes, failures} {
			moments, err := disturbed(m, script, direct, d)
			if err != nil {
				t.Fatalf("%s, %q: %v", m.Name, script, err)
			}
			all += moments
		}
	}
	t.Logf("%d disturbed runs", all)
}

// TestNoLeak: after random crashes, an unused GPU can be obtained as a whole.
func TestNoLeak(t *testing.T) {
	random := rand.New(rand.NewPCG(10, 1))
	for range 500 {
		m := mig.Models()[random.IntN(len(mig.Models()))]
		script := slices.DeleteFunc(randomScript(random, m), func(line string) bool { return line == "start 0" })
		script = append(script, slices.Repeat([]string{"release 0"}, 8)...)
		script = append(script, fmt.Sprintf("obtain %s@0", m.Profiles[len(m.Profiles)-1].Name))
		w, err := play(m, script, direct, crashes, random.IntN(40), random.IntN(80), random.IntN(160))
		if err != nil || strings.HasSuffix(w.answers[len(w.answers)-1], "refused") {
			t.Fatalf("%s, %q: %v, %q", m.Name, script, err, w.answers)
		}
	}
}

// randomScript returns a random scenario.
func randomScript(random *rand.Rand, m *mig.Model) (script []string) {
	running := false
	for range 4 + random.IntN(12) {
		switch n := random.IntN(20); {
		case n < 10:
			p := &m.Profiles[random.IntN(len(m.Profiles))]
			script = append(script, fmt.Sprintf("obtain %s@%d", p.Name, p.Starts[random.IntN(len(p.Starts))]))
		case n < 16:
			script = append(script, fmt.Sprint("release ", random.IntN(3)))
		case n == 16:
			script = append(script, "restart")
		case n == 17:
			script = append(script, "reboot")
			running = false
		case !running:
			script = append(script, "start 0") // the process stays, also when its instance is released
			running = true
		}
	}
	return script
}

// TestWithoutIntents: a journal without intents loses instances in a crash, and the scenarios must show it.
func TestWithoutIntents(t *testing.T) {
	for name, script := range scenarios {
		t.Run(name, func(t *testing.T) {
			if _, err := disturbed(model(t), script, forgetful, crashes); err == nil {
				t.Error("the scenario succeeds without intents")
			}
		})
	}
}
