package enforce_test

import (
	"testing"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestCopies runs a pod that only executes memsets, or copies on the device, beside a greedy pod. Each gets its quota; without the hook,
// or if the hook cannot measure, the first does not keep to it.
func TestCopies(t *testing.T) {
	t.Parallel()
	const quota, other, from, length = 100, 850, 5 * window, 2 * second
	for name, test := range map[string]struct {
		load     []string
		env      []string
		unhooked bool
		accurate bool
	}{
		"memsets":                  {load: memsets, accurate: true},
		"copies":                   {load: copies, accurate: true},
		"memsets without the hook": {load: memsets, unhooked: true},
		"memsets without events":   {load: memsets, env: noEvents},
	} {
		t.Run(name, func(t *testing.T) {
			spans := run(t, enforce.Experiment{Tokens: table, Unhooked: test.unhooked, Length: length, Pods: []enforce.Pod{
				{Share: part(1000, quota), Load: test.load, Env: test.env}, {Share: part(1000, other), Load: greedy()},
			}})
			for i, q := range []share.PerMille{quota, other} {
				err := enforce.Accurate(spans[i], q, from, length)
				t.Logf("pod %d: busy %.2f %%, quota %.1f %%", i, 100*spans[i].Busy(from, length), float64(q)/10)
				if test.accurate && err != nil {
					t.Errorf("pod %d: %v", i, err)
				}
				if !test.accurate && i == 0 && err == nil {
					t.Error("it keeps to its quota all the same")
				}
			}
		})
	}
}

// TestUploads runs a pod that continuously copies to the device beside one that computes. Such copies use no SMs: they take nothing from
// the other pod's quota, and need no token.
func TestUploads(t *testing.T) {
	t.Parallel()
	const quota, from, length = 500, 5 * window, second
	r := results(t, enforce.Experiment{Tokens: table, Length: length, Pods: []enforce.Pod{
		{Share: part(1000, 100), Load: []string{"1200000", "as=upload", "sync=1"}}, {Share: part(1000, quota), Load: greedy()},
	}})
	if err := enforce.Accurate(r[1].Kernels, quota, from, length); err != nil {
		t.Error(err)
	}
	if r[0].Reported > 10*ms {
		t.Errorf("the copies are reported as %v of device time", r[0].Reported)
	}
}
