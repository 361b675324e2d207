package enforce_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// load is a way to keep a GPU busy.
type load struct {
	name string
	args []string
}

// A memset of 256 MiB takes 0.3 ms, and a copy of 64 MiB on the device 0.15 ms, of the simulated memory's bandwidth.
var (
	memsets = []string{"268435456", "as=memset"}
	copies  = []string{"67108864", "as=copy", "streams=2"}
)

var loads = []load{
	{"kernels", greedy()},
	{"graphs", []string{kernel(50*time.Microsecond, share.Whole), "as=graph", "graph=10"}},
	{"cooperative", []string{kernel(ms, share.Whole), "as=cooperative"}},
	{"small kernels", []string{kernel(10*time.Microsecond, 20)}},
	{"streams", []string{kernel(200*time.Microsecond, 100), "streams=4"}},
	{"memsets", memsets},
	{"copies", copies},
	{"synchronous", []string{kernel(300*time.Microsecond, share.Whole), "sync=1"}},
}

// TestAccuracy runs a pod beside a greedy one that has the rest of the quota: each gets its quota, and neither waits longer than necessary.
func TestAccuracy(t *testing.T) {
	t.Parallel()
	length, quotas, sms := 2*second, []share.PerMille{250}, []share.PerMille{240}
	if *full {
		length, quotas, sms = 10*second, []share.PerMille{100, 250, 500, 750}, []share.PerMille{100, 240, 500, 1000}
	}
	for _, load := range loads {
		for _, quota := range quotas {
			for _, sm := range sms {
				t.Run(fmt.Sprintf("%s/%d/%d", load.name, sm, quota), func(t *testing.T) { accuracy(t, load, sm, quota, length) })
			}
		}
	}
}

func accuracy(t *testing.T, load load, sm, quota share.PerMille, length time.Duration) {
	other := share.Whole - table.Reserve - quota
	spans := run(t, enforce.Experiment{Tokens: table, Length: length, Pods: []enforce.Pod{
		{Share: part(sm, quota), Load: load.args}, {Share: part(1000, other), Load: greedy()},
	}})
	from := 5 * window // by then, kernels of unknown length have been measured
	for i, q := range []share.PerMille{quota, other} {
		t.Logf("pod %d: busy %.2f %%, quota %.1f %%, stall p99 %v", i, 100*spans[i].Busy(from, length), float64(q)/10,
			enforce.Quantile(spans[i].Stalls(from, length), 0.99))
		if err := enforce.Accurate(spans[i], q, from, length); err != nil {
			t.Errorf("pod %d: %v", i, err)
		}
		longest := max(spans[0].Longest(), spans[1].Longest())
		if err := enforce.Prompt(spans[i], q, window, turn, longest, from, length); err != nil {
			t.Errorf("pod %d: %v", i, err)
		}
	}
}

// TestAlternatingStreams has kernels that wait for those of the process's other stream. The hook must not count that wait as part of their
// cost, or too few are launched ahead and the pod's SMs idle during its turns.
func TestAlternatingStreams(t *testing.T) {
	t.Parallel()
	accuracy(t, load{"", []string{kernel(150*time.Microsecond, share.Whole), "streams=2"}}, 500, 250, 2*second)
}

// noEvents makes the driver refuse to create events, so that the hook cannot measure anything.
var noEvents = []string{"FAKE_CUDA_FAIL=cuEventCreate:1:2:1000000000"}

// TestAccuracyControl is the negative control: the accuracy check fails without the hook, and without driver events.
func TestAccuracyControl(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]struct {
		unhooked bool
		env      []string
	}{
		"no hook":       {unhooked: true},
		"no accounting": {env: noEvents},
	} {
		t.Run(name, func(t *testing.T) {
			load := greedy()
			spans := run(t, enforce.Experiment{Tokens: table, Unhooked: control.unhooked, Length: second, Pods: []enforce.Pod{
				{Share: part(1000, 250), Load: load, Env: control.env}, {Share: part(1000, 700), Load: load, Env: control.env},
			}})
			if enforce.Accurate(spans[0], 250, 2*window, second) == nil {
				t.Error("the pod keeps to its quota all the same")
			}
		})
	}
}
