package slot

import (
	"math"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// run is a configuration and how long it runs in each window.
type run struct {
	config config
	length time.Duration
}

// roundedRuns converts the times of the solution to whole nanoseconds. They are first rounded down; then every run of an item that still
// lacks time is extended by a nanosecond, as long as the window has time left. After that an item can lack time only if the window has no
// reserve for the extensions, or if all of its runs have been extended already.
func (g *program) roundedRuns(window time.Duration) []run {
	runs := g.floorRuns(window)
	spare := g.timeLimit(window) - totalTime(runs)
	short := g.shortage(runs, window)
	for k := range runs {
		if spare > 0 && holdsShort(runs[k].config, short) {
			runs[k].length++
			spare--
			subtractRun(runs[k].config, short, 1)
		}
	}
	return dropEmpty(trimLongest(runs, spare))
}

// floorRuns rounds every run down to whole nanoseconds. A time that is less than a thousandth of a nanosecond below an integer is rounded
// up to it, because the difference is a rounding error.
func (g *program) floorRuns(window time.Duration) []run {
	runs := make([]run, g.n)
	for k, t := range g.time[:g.n] {
		exact := float64(t*float64(window)) / float64(share.Whole)
		runs[k] = run{g.basis[k], time.Duration(math.Floor(exact + 1e-3))}
	}
	return runs
}

// timeLimit returns the time that all runs may take: the window without the reserve, plus up to a nanosecond of the reserve for each item.
func (g *program) timeLimit(window time.Duration) time.Duration {
	whole := time.Duration(share.Whole)
	budget := window * time.Duration(g.limit) / whole
	if g.limit == int(share.Whole) {
		return budget
	}
	return min(window, budget+time.Duration(g.n))
}

// shortage returns, for each item, the time in picoseconds by which it falls short of its quota. In picoseconds it is an integer for every
// window.
func (g *program) shortage(runs []run, window time.Duration) []int64 {
	short := make([]int64, g.n)
	for j, x := range g.list() {
		short[j] = int64(x.quota) * int64(window)
	}
	for _, r := range runs {
		subtractRun(r.config, short, r.length)
	}
	return short
}

func subtractRun(c config, short []int64, d time.Duration) {
	for ; !c.empty(); c = c.withoutFirst() {
		short[c.first()] -= int64(d) * int64(share.Whole)
	}
}

func holdsShort(c config, short []int64) bool {
	for ; !c.empty(); c = c.withoutFirst() {
		if short[c.first()] > 0 {
			return true
		}
	}
	return false
}

func totalTime(runs []run) time.Duration {
	sum := time.Duration(0)
	for _, r := range runs {
		sum += r.length
	}
	return sum
}

// trimLongest shortens the longest run by the time by which rounding exceeded the limit, if it did.
func trimLongest(runs []run, spare time.Duration) []run {
	longest := 0
	for k := range runs {
		if runs[k].length > runs[longest].length {
			longest = k
		}
	}
	runs[longest].length += min(spare, 0)
	return runs
}

func dropEmpty(runs []run) []run {
	kept := runs[:0]
	for _, r := range runs {
		if r.length > 0 {
			kept = append(kept, r)
		}
	}
	return kept
}
