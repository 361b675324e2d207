package enforce_test

import (
	"fmt"
	"testing"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestAccounting compares the device time that the hook measures with driver events to the device's own count.
func TestAccounting(t *testing.T) {
	t.Parallel()
	const length, measured = second, 900 * ms
	for _, load := range loads {
		for _, sm := range []share.PerMille{240, 1000} {
			t.Run(fmt.Sprintf("%s/%d", load.name, sm), func(t *testing.T) {
				r := results(t, enforce.Experiment{Tokens: table, Length: length, Pods: []enforce.Pod{{Share: part(sm, 250), Load: load.args}}})[0]
				real := r.Kernels.Busy(length-measured, length) * measured.Seconds()
				t.Logf("reported %.2f %% of %.1f ms", 100*r.Reported.Seconds()/real, 1000*real)
				if got := r.Reported.Seconds() / real; got < 0.97 || got > 1.03 {
					t.Errorf("the hook reports %.1f %% of the device time", 100*got)
				}
			})
		}
	}
}

// TestAccountingControl is the negative control: without driver events, the hook reports no measured time.
func TestAccountingControl(t *testing.T) {
	t.Parallel()
	r := results(t, enforce.Experiment{Tokens: table, Length: second, Pods: []enforce.Pod{
		{Share: part(1000, 250), Load: greedy(), Env: noEvents},
	}})[0]
	if real := r.Kernels.Busy(100*ms, second) * 0.9; r.Reported.Seconds() > 0.97*real {
		t.Errorf("reported %v of %.3f s without events", r.Reported, real)
	}
}
