package enforce

import (
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Accurate returns an error unless the use of a pod is within two percentage points of its quota.
func Accurate(s Spans, quota share.PerMille, from, to time.Duration) error {
	got, want := s.Busy(from, to), float64(quota)/float64(share.Whole)
	if got < want-0.02 || got > want+0.02 {
		return fmt.Errorf("busy for %.1f %%, its quota is %.1f %%", 100*got, 100*want)
	}
	return nil
}

// Delivered returns an error unless a pod that always has work gets at least 98 % of its quota.
func Delivered(s Spans, quota share.PerMille, from, to time.Duration) error {
	got, want := s.Busy(from, to), float64(quota)/float64(share.Whole)
	if got < 0.98*want {
		return fmt.Errorf("busy for %.1f %%, %.1f %% of its quota of %.1f %%", 100*got, 100*got/want, 100*want)
	}
	return nil
}

// Bounded returns an error if, in any window that begins at or after a point in time, a pod used more than its limit plus the
// work that may be queued when a token ends.
func Bounded(s Spans, limit share.PerMille, window, queued, after time.Duration) error {
	bound := time.Duration(limit)*window/time.Duration(share.Whole) + queued
	if most := s.Most(window, after); most > bound {
		return fmt.Errorf("busy for %v of a window, the bound is %v", most, bound)
	}
	return nil
}

// Loss returns the fraction by which the number of a pod's kernels dropped from one period to another of the same length.
func Loss(s Spans, before, after, length time.Duration) float64 {
	return 1 - float64(s.Kernels(after, after+length))/float64(s.Kernels(before, before+length))
}

// Prompt returns an error unless the 99th percentile of a pod's stalls is at most the rest of the window plus one turn and the
// longest kernel.
func Prompt(s Spans, quota share.PerMille, window, turn, kernel, from, to time.Duration) error {
	bound := time.Duration(share.Whole-quota)*window/time.Duration(share.Whole) + turn + kernel
	if p99 := Quantile(s.Stalls(from, to), 0.99); p99 > bound {
		return fmt.Errorf("99 of 100 kernels end within %v of the last, the bound is %v", p99, bound)
	}
	return nil
}
