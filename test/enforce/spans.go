package enforce

import (
	"cmp"
	"slices"
	"time"

	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
)

// Spans are the kernels of one pod with their times of launch, start and end, in the order in which they ended.
type Spans []fakegpu.Span

// Busy returns the fraction of a period in which at least one of the kernels ran.
func (s Spans) Busy(from, to time.Duration) float64 {
	busy := time.Duration(0)
	for _, span := range s.merged() {
		busy += max(0, min(span.End, to)-max(span.Start, from))
	}
	return float64(busy) / float64(to-from)
}

// Most returns the longest time during which at least one kernel ran within a window of the given length. It ignores kernels that start
// before after.
func (s Spans) Most(window, after time.Duration) (most time.Duration) {
	merged := slices.DeleteFunc(s.merged(), func(span fakegpu.Span) bool { return span.Start < after })
	busy, last := time.Duration(0), 0 // busy time of the kernels from k on that start within the window
	for _, first := range merged {
		end := first.Start + window
		for ; last < len(merged) && merged[last].Start < end; last++ {
			busy += merged[last].End - merged[last].Start
		}
		most = max(most, busy-max(0, merged[last-1].End-end))
		busy -= first.End - first.Start
	}
	return most
}

// Least returns the shortest time during which at least one kernel ran, of all windows of the given length in a period.
func (s Spans) Least(window, from, to time.Duration) time.Duration {
	merged, least := s.merged(), window
	used := func(start time.Duration) (sum time.Duration) {
		for _, span := range merged {
			sum += max(0, min(span.End, start+window)-max(span.Start, start))
		}
		return sum
	}
	for start := from; start+window <= to; start += window / 100 {
		least = min(least, used(start))
	}
	return least
}

// merged returns the periods in which at least one kernel ran, in ascending order.
func (s Spans) merged() (list Spans) {
	for _, span := range slices.SortedFunc(slices.Values(s), func(a, b fakegpu.Span) int { return cmp.Compare(a.Start, b.Start) }) {
		if n := len(list); n > 0 && span.Start <= list[n-1].End {
			list[n-1].End = max(list[n-1].End, span.End)
			continue
		}
		list = append(list, span)
	}
	return list
}

// Stalls returns the times without progress in a period, those between the ends of consecutive kernels, in ascending order.
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

// Quantile returns the value that the given fraction of the sorted values does not exceed, or zero if there are no values.
func Quantile(sorted []time.Duration, part float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, int(part*float64(len(sorted))))]
}

// Kernels returns the number of kernels that ended in a period.
func (s Spans) Kernels(from, to time.Duration) int {
	n := 0
	for _, span := range s {
		if span.End > from && span.End <= to {
			n++
		}
	}
	return n
}

// Longest returns the duration of the longest kernel.
func (s Spans) Longest() (longest time.Duration) {
	for _, span := range s {
		longest = max(longest, span.End-span.Start)
	}
	return longest
}

// Ahead returns the largest amount of launched but unfinished GPU work, as a duration, at any launch after the given time. It does not
// include the kernel being launched, and assumes that the kernels have the GPU alone and use all of its SMs.
func (s Spans) Ahead(after time.Duration) (most time.Duration) {
	free := time.Duration(0) // when the device will have finished everything launched so far
	for _, span := range slices.SortedFunc(slices.Values(s), func(a, b fakegpu.Span) int { return int(a.At - b.At) }) {
		if span.At >= after {
			most = max(most, free-span.At)
		}
		free = max(free, span.At) + span.End - span.Start
	}
	return most
}

// Launched returns the number of kernels that were launched in a period.
func (s Spans) Launched(from, to time.Duration) (n int) {
	for _, span := range s {
		if span.At > from && span.At <= to {
			n++
		}
	}
	return n
}
