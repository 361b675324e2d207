package agent

import (
	"testing"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestRoundedPeak: a peak is shown with less than 1/32 above it, and never less than it is; there are few values to show.
func TestRoundedPeak(t *testing.T) {
	t.Parallel()
	for peak, want := range map[share.Bytes]int64{
		0: 0, 1: 1, share.MiB: 1, 63 * share.MiB: 63, 64 * share.MiB: 64, 65 * share.MiB: 66, 300 * share.MiB: 304, 300*share.MiB + 1: 304, 1025 * share.MiB: 1056, 80 << 30: 81920,
	} {
		if got := roundedPeak(peak); got != want {
			t.Errorf("%d: %d MiB, want %d", peak, got, want)
		}
	}
	values := map[int64]bool{}
	for mib := range int64(80 << 10) {
		got := roundedPeak(share.Bytes(mib) * share.MiB)
		if got < mib || (got-mib)*32 > mib {
			t.Fatalf("%d MiB are shown as %d", mib, got)
		}
		values[got] = true
	}
	if len(values) > 450 {
		t.Errorf("%d values up to 80 GiB", len(values))
	}
}

// TestMemoryPeaks: pods are reported on when a peak has risen, and not while it stays, falls, or its container ends.
func TestMemoryPeaks(t *testing.T) {
	t.Parallel()
	now := func(peaks map[string][]share.Bytes) (all []tokenserver.Status) {
		for id, of := range peaks {
			c := tokenserver.Status{ID: id}
			for _, peak := range of {
				c.VGPUs = append(c.VGPUs, tokenserver.VGPUStatus{Peak: peak * share.MiB})
			}
			all = append(all, c)
		}
		return all
	}
	var p memoryPeaks
	for n, step := range []struct {
		peaks map[string][]share.Bytes
		want  bool
	}{
		{nil, false},
		{map[string][]share.Bytes{"a": {0}}, false},
		{map[string][]share.Bytes{"a": {100}}, true},
		{map[string][]share.Bytes{"a": {100}}, false},
		{map[string][]share.Bytes{"a": {99}}, false},
		{map[string][]share.Bytes{"a": {99}, "b": {0, 1}}, true},
		{map[string][]share.Bytes{"b": {0, 1}}, false},
		{map[string][]share.Bytes{"a": {50}, "b": {0, 1}}, true}, // another container
	} {
		if got := p.risen(now(step.peaks)); got != step.want {
			t.Errorf("step %d: risen %t", n, got)
		}
	}
}
