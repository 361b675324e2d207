package slot

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Turn is a piece of the table: Members, as ascending indices into the items, run together for Duration.
type Turn struct {
	Members  []int
	Duration time.Duration
}

// Table says who runs when. Its turns follow one another and repeat every Window; what they leave of it is the reserve
// and idle time. Items with full quota are members of every turn and keep running between turns.
type Table struct {
	Window time.Duration
	Turns  []Turn
}

// longestWindow keeps rounding below a thousandth of a nanosecond. Windows are milliseconds, never minutes.
const longestWindow = time.Minute

// Solve returns a table that gives every item its quota of each window, or ok=false if the items do not fit or the
// window is not between a nanosecond and a minute.
//
// Items that fit together get one turn, as long as the window. Otherwise there is at most one turn for each item that
// takes turns. Durations are whole nanoseconds: with a reserve they are rounded up where an item needs it, at the
// reserve's cost and at most a nanosecond a turn; without one the last nanosecond of a turn can be missing.
func Solve(items []Item, window time.Duration, reserve share.PerMille) (Table, bool) {
	if window <= 0 || window > longestWindow {
		return Table{}, false
	}
	g := new(program)
	switch g.normalize(items, reserve) {
	case fits:
		return together(items, window), true
	case exceeds:
		return Table{}, false
	}
	if g.quickTest() == exceeds || g.decide() != fits {
		return Table{}, false
	}
	return Table{window, g.turns(items, window)}, true
}

// together returns the table of items that all run at once.
func together(items []Item, window time.Duration) Table {
	if len(items) == 0 {
		return Table{Window: window}
	}
	all := make([]int, len(items))
	for at := range items {
		all[at] = at
	}
	return Table{window, []Turn{{all, window}}}
}

// turns writes the solution of the program as turns, in the order that changes least.
func (g *program) turns(items []Item, window time.Duration) []Turn {
	var always []int
	for at, i := range items {
		if i.isFull() {
			always = append(always, at)
		}
	}
	runs := orderRuns(g.roundedRuns(window))
	turns := make([]Turn, len(runs))
	for k, r := range runs {
		turns[k] = Turn{g.members(r.config, always), r.length}
	}
	return turns
}

// members returns a configuration and the items that always run, by their place in the caller's list.
func (g *program) members(c config, always []int) []int {
	list := slices.Clone(always)
	for ; !c.empty(); c = c.withoutFirst() {
		list = append(list, int(g.origin[c.first()]))
	}
	slices.Sort(list)
	return list
}

// ordered arranges the runs of a table so that few pieces start or stop from one to the next, the last being followed
// by the first. Among the nearest-neighbour tours from every start it takes the one with fewest changes, the first among
// equals. Runs are few, so trying all starts costs little; the best tour of all would not be worth its search.
func orderRuns(runs []run) []run {
	best := tour(runs, 0)
	for start := 1; start < len(runs); start++ {
		if t := tour(runs, start); countChanges(t) < countChanges(best) {
			best = t
		}
	}
	return best
}

// tour goes from a start always to the run, among those left, that changes least.
func tour(runs []run, start int) []run {
	t := slices.Clone(runs)
	for k := range t {
		next := k
		if k == 0 {
			next = start
		} else {
			next = k + nearest(t[k-1], t[k:])
		}
		t[k], t[next] = t[next], t[k]
	}
	return t
}

// nearest returns the place of the run that differs least from r, the first among equals.
func nearest(r run, others []run) int {
	best := 0
	for k := range others {
		if changes(r.config, others[k].config) < changes(r.config, others[best].config) {
			best = k
		}
	}
	return best
}

// cost returns the number of starts and stops in a window.
func countChanges(t []run) int {
	sum := 0
	for k := range t {
		sum += changes(t[k].config, t[(k+1)%len(t)].config)
	}
	return sum
}
