package enforce

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/fakegpu"
)

// Spans are the kernels of one pod, in the order of their ends.
type Spans []fakegpu.Span

// Busy is the part of the time from one point to another in which at least one kernel ran.
func (s Spans) Busy(from, to time.Duration) float64 {
	byStart := slices.SortedFunc(slices.Values(s), func(a, b fakegpu.Span) int { return int(a.Start - b.Start) })
	busy, seen := time.Duration(0), from
	for _, span := range byStart {
		start, end := max(span.Start, seen), min(span.End, to)
		if end > start {
			busy += end - start
			seen = end
		}
	}
	return float64(busy) / float64(to-from)
}

// Stalls are the times from the end of one kernel to the end of the next, shortest first: how long the pod saw no progress.
func (s Spans) Stalls(from, to time.Duration) []time.Duration {
	var stalls []time.Duration
	last := from
	for _, span := range s {
		if span.End < from || span.End > to {
			continue
		}
		stalls = append(stalls, span.End-last)
		last = span.End
	}
	stalls = append(stalls, to-last)
	slices.Sort(stalls)
	return stalls
}

// Quantile is the value below which the given part of sorted values lies; zero if there are none.
func Quantile(sorted []time.Duration, part float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}

// Kernels is how many ended in a period.
func (s Spans) Kernels(from, to time.Duration) int {
	n := 0
	for _, span := range s {
		if span.End > from && span.End <= to {
			n++
		}
	}
	return n
}

// Longest is the longest kernel.
func (s Spans) Longest() (longest time.Duration) {
	for _, span := range s {
		longest = max(longest, span.End-span.Start)
	}
	return longest
}
