package enforce_test

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestShortBesideLong runs a program of short kernels, which the host launches more slowly than the GPU runs them, beside one with
// kernels of 1.8 ms. It checks that the first achieves its part of the rate that it has alone, and less if nothing limits the two. On a
// real GPU, whose clock drops while the long kernels run, it achieves less than here (docs/hardware.md).
func TestShortBesideLong(t *testing.T) {
	t.Parallel()
	length := 5 * window
	if *full {
		length = 2 * second
	}
	short := []string{kernel(3*time.Microsecond, 60), "sync=550"}
	long := []string{kernel(1800*time.Microsecond, share.Whole), "sync=4"}
	kernels := func(unhooked bool, pods ...enforce.Pod) float64 {
		return float64(len(run(t, enforce.Experiment{Tokens: table, Unhooked: unhooked, Length: length, Pods: pods})[0]))
	}
	whole := kernels(false, enforce.Pod{Share: part(1000, 1000), Load: short})
	for name, unhooked := range map[string]bool{"hook": false, "no hook": true} {
		t.Run(name, func(t *testing.T) {
			got := kernels(unhooked, enforce.Pod{Share: part(1000, 650), Load: short}, enforce.Pod{Share: part(1000, 300), Load: long}) / whole
			t.Logf("%.1f %% of its rate alone", 100*got)
			if delivered := got >= 0.63 && got <= 0.67; delivered == unhooked {
				t.Errorf("%.1f %% of its rate alone with a quota of 65 %%", 100*got)
			}
		})
	}
}
