package scaling

import (
	"slices"
	"time"
)

// Sample is the load of a function at one moment.
type Sample struct {
	At   time.Duration
	Load Rate
}

// window is a sliding window of load samples, oldest first.
type window []Sample

// add returns the window with one more sample and without the samples that are older than length, so that an autoscaler that was stopped
// does not act on old load. A sample less than a period after the last one is ignored.
func (w window) add(s Sample, length, period time.Duration) window {
	if len(w) > 0 && s.At-w[len(w)-1].At < period {
		return w
	}
	young := slices.IndexFunc(w, func(old Sample) bool { return s.At-old.At < length })
	if young < 0 {
		young = len(w)
	}
	return append(slices.Clone(w[young:]), s)
}

// countAbove returns the number of samples above the given throughput.
func (w window) countAbove(throughput Rate) int {
	return w.count(func(load Rate) bool { return load > throughput })
}

// countBelow returns the number of samples below the given throughput. A load of zero counts as below even if the throughput is zero:
// otherwise the last instance would never be removed.
func (w window) countBelow(throughput Rate) int {
	return w.count(func(load Rate) bool { return load < throughput || load == 0 })
}

func (w window) count(votes func(Rate) bool) int {
	n := 0
	for _, s := range w {
		if votes(s.Load) {
			n++
		}
	}
	return n
}

func (w window) loads() []Rate {
	loads := make([]Rate, len(w))
	for i, s := range w {
		loads[i] = s.Load
	}
	return loads
}

// loadReached returns the highest load that at least n of the samples reach, or 0 if there are fewer than n samples.
func (w window) loadReached(n int) Rate {
	loads := w.loads()
	slices.Sort(loads)
	if n > len(loads) {
		return 0
	}
	return loads[len(loads)-n]
}
