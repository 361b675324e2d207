package enforce_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/enforce"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestRunAhead checks that the unfinished work of a process, which the server cannot stop, stays within the run-ahead bound for any
// number of streams and threads.
func TestRunAhead(t *testing.T) {
	t.Parallel()
	const bound = ms // the token server's default
	kernels := []time.Duration{100 * time.Microsecond, 400 * time.Microsecond}
	if *full {
		kernels = append(kernels, 20*time.Microsecond)
	}
	for _, length := range kernels {
		for _, shape := range []struct{ streams, threads int }{{1, 1}, {8, 1}, {1, 8}, {4, 8}} {
			t.Run(fmt.Sprintf("%v/%d streams/%d threads", length, shape.streams, shape.threads), func(t *testing.T) {
				if got := ahead(t, 0, length, shape.streams, shape.threads); got > bound {
					t.Errorf("%v of work is queued, the bound is %v", got, bound)
				}
			})
		}
	}
}

// TestRunAheadControl is the negative control: with a larger bound, more work is queued.
func TestRunAheadControl(t *testing.T) {
	t.Parallel()
	if got := ahead(t, 20*ms, 100*time.Microsecond, 1, 8); got <= ms {
		t.Errorf("%v of work is queued, the bound is 20 ms", got)
	}
}

// ahead returns the largest amount of queued work of a process that has the device to itself.
func ahead(t *testing.T, bound, length time.Duration, streams, threads int) time.Duration {
	load := []string{kernel(length, share.Whole), fmt.Sprint("streams=", streams), fmt.Sprint("threads=", threads)}
	spans := run(t, enforce.Experiment{Tokens: table, RunAhead: bound, Length: second / 2, Pods: []enforce.Pod{
		{Share: part(1000, 500), Load: load},
	}})[0]
	got := spans.Ahead(2 * window)
	t.Logf("ahead by %v, busy %.2f %%", got, 100*spans.Busy(2*window, second/2))
	return got
}

// TestBackToBack checks that the device does not wait for the host between kernels or graphs that take up to half of the bound.
func TestBackToBack(t *testing.T) {
	t.Parallel()
	for _, length := range []time.Duration{180 * time.Microsecond, 378 * time.Microsecond, 480 * time.Microsecond} {
		for _, as := range []string{"as=kernel", "as=graph"} {
			t.Run(fmt.Sprint(length, "/", as), func(t *testing.T) {
				t.Parallel()
				spans := run(t, enforce.Experiment{Tokens: table, Length: second / 2, Pods: []enforce.Pod{
					{Share: part(1000, 1000), Load: []string{kernel(length, share.Whole), as}},
				}})[0]
				if busy, ahead := spans.Busy(2*window, second/2), spans.Ahead(2*window); busy < 0.995 || ahead > ms {
					t.Errorf("busy for %.2f %%, ahead by %v; want 99.5 %%, and at most %v", 100*busy, ahead, ms)
				}
			})
		}
	}
}
