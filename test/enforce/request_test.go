package enforce_test

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestRequest checks that an SLO pod gets its SM request, less one kernel of the other pod, beside a best-effort pod with kernels of any
// kind; and that the best-effort pod gets at least nine tenths of its own request. The control is the same load without the hook.
func TestRequest(t *testing.T) {
	t.Parallel()
	const from, to = second, 5 * second
	for name, test := range map[string]struct {
		kernel     string
		length     time.Duration // of a kernel, or of one of its waves
		priorities bool          // the simulated device honours the MPS priorities
	}{
		"0.5 ms":             {kernel(ms/2, share.Whole), ms / 2, true},
		"5 ms, one block":    {"spin_ns5000000_sm1000_blocks1", 5 * ms, false},
		"50 ms":              {kernel(50*ms, share.Whole), 50 * ms, false},
		"50 ms in 100 waves": {"spin_ns50000000_sm1000_blocks6400_waves100", 50 * ms, true},
		"200 ms":             {kernel(200*ms, share.Whole), 200 * ms, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := enforce.Experiment{Elastic: true, Pods: []enforce.Pod{
				{Share: elastic(200, share.Whole), Priority: share.BestEffort, Load: []string{test.kernel}},
				{Share: elastic(700, share.Whole), Priority: share.SLO, Load: greedy()},
			}}
			if test.priorities {
				e.Pods[0].Env = []string{mps.LowPriorityVariable}
			}
			used := func(e enforce.Experiment) (parts [2]float64) {
				m := open(t, e)
				var before [2]time.Duration
				for _, until := range []time.Duration{from, to} {
					if err := m.GPU.Run(until); err != nil {
						t.Fatal(err)
					}
					for k := range parts {
						parts[k] = float64(m.Busy(k)-before[k]) / float64(to-from)
						before[k] = m.Busy(k)
					}
				}
				m.Close()
				return parts
			}
			kernel := float64(test.length) / float64(to-from)
			kept := func(parts [2]float64) bool { return parts[1] >= 0.7-0.02-kernel && parts[0] >= 0.9*0.2-kernel }
			got := used(e)
			e.Unhooked = true
			control := used(e)
			t.Logf("best effort has %.1f %%, SLO %.1f %%; without the hook %.1f and %.1f %%", 100*got[0], 100*got[1], 100*control[0], 100*control[1])
			if !kept(got) {
				t.Errorf("best effort has %.1f %%, SLO %.1f %%, want 20 and 70 %%", 100*got[0], 100*got[1])
			}
			if kept(control) {
				t.Error("without the hook both have their requests as well")
			}
		})
	}
}
