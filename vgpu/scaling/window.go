package scaling

import (
	"slices"
	"time"
)

// Sample is the load of a function, measured at a time.
type Sample struct {
	At   time.Duration
	Load Rate
}

// window is the samples of the last so many seconds, oldest first (DI-80).
type window []Sample

// add gives the window with a further sample and without those of length ago or earlier: a scaler that stood still must
// not act on what it saw before. A sample that comes before its period is over is not one.
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

func (w window) above(throughput Rate) int {
	return w.count(func(load Rate) bool { return load > throughput })
}

// below counts samples that fewer instances could serve. No load at all is below no throughput at all: else the last
// instance would stay for ever.
func (w window) below(throughput Rate) int {
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

// reached is the load that at least n of the samples reach.
func (w window) reached(n int) Rate {
	loads := w.loads()
	slices.Sort(loads)
	if n > len(loads) {
		return 0
	}
	return loads[len(loads)-n]
}
