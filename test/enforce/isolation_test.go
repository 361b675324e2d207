package enforce_test

import (
	"testing"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// neighbours returns a pod that uses its quota beside seven pods that start to launch continuously at the given time.
func neighbours(unhooked bool, start string) enforce.Experiment {
	e := enforce.Experiment{Tokens: table, Unhooked: unhooked, Pods: []enforce.Pod{{Share: part(500, 400), Load: greedy()}}}
	for range 7 {
		e.Pods = append(e.Pods, enforce.Pod{Share: part(400, 200), Load: greedy(start)})
	}
	return e
}

// TestIsolation checks that a pod that uses its quota loses at most 3 % when seven greedy neighbours start, and that it loses more
// without the hook.
func TestIsolation(t *testing.T) {
	t.Parallel()
	half := second
	if *full {
		half = 5 * second
	}
	for name, unhooked := range map[string]bool{"hook": false, "no hook": true} {
		t.Run(name, func(t *testing.T) {
			e := neighbours(unhooked, at("from", half))
			e.Length = 2 * half
			loss := enforce.Loss(run(t, e)[0], 2*window, half+2*window, half-2*window)
			t.Logf("lost %.1f %%", 100*loss)
			if isolated := loss <= 0.03; isolated == unhooked {
				t.Errorf("lost %.1f %%", 100*loss)
			}
		})
	}
}

// TestFaST is the experiment of section 5.3 of FaST-GShare: a pod with a limit of 80 % of the time, later joined by one with 50 %.
// With all SMs each, they disturb each other; with 24 % of the SMs each, they do not.
func TestFaST(t *testing.T) {
	t.Parallel()
	half := second
	if *full {
		half = 5 * second
	}
	for name, test := range map[string]struct {
		sm    share.PerMille
		least float64
		most  float64
	}{
		"time alone":     {1000, 0.10, 1},
		"time and space": {240, -0.03, 0.03},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := part(test.sm, 800), part(test.sm, 500)
			if test.sm == share.Whole {
				first.QuotaRequest, second.QuotaRequest = 550, 350
			}
			spans := run(t, enforce.Experiment{Tokens: token.Config{Policy: token.Fast}, Length: 2 * half, Pods: []enforce.Pod{
				{Share: first, Load: greedy()}, {Share: second, Load: greedy(at("from", half))},
			}})
			loss := enforce.Loss(spans[0], 2*window, half+2*window, half-2*window)
			t.Logf("the first pod lost %.1f %%", 100*loss)
			if loss < test.least || loss > test.most {
				t.Errorf("the first pod lost %.1f %%", 100*loss)
			}
		})
	}
}
