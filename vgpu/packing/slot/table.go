package slot

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Turn is one entry of a Table: the items that run together (Members: their indices, ascending) and how long they do.
type Turn struct {
	Members  []int
	Duration time.Duration
}

// Table is a schedule of a slice. Its turns follow one another and repeat every Window; the rest of the window is reserve and idle time.
// Items with full quota are members of every turn and keep running between turns.
type Table struct {
	Window time.Duration
	Turns  []Turn
}

// longestWindow is the longest window that Solve accepts. It keeps rounding errors below a thousandth of a nanosecond; windows are
// milliseconds in practice.
const longestWindow = time.Minute

// Solve returns a table that runs every item for its quota of each window. It returns ok = false if the items do not fit or the window is
// not between a nanosecond and a minute.
//
// Items that fit together get one turn, as long as the window. Otherwise there is at most one turn for each item with less than full quota.
// Durations are whole nanoseconds. With a reserve they are rounded up where an item needs it, which costs the reserve at most a nanosecond
// for each turn; without a reserve the last nanosecond of a turn can be missing.
func Solve(items []Item, window time.Duration, reserve share.PerMille) (Table, bool) {
	if window <= 0 || window > longestWindow {
		return Table{}, false
	}
	g := new(program)
	switch g.normalize(items, reserve) {
	case fits:
		return singleTurn(items, window), true
	case exceeds:
		return Table{}, false
	}
	if g.quickTest() == exceeds || g.decide() != fits {
		return Table{}, false
	}
	return Table{window, g.turns(items, window)}, true
}

// singleTurn returns the table of items that all run at once.
func singleTurn(items []Item, window time.Duration) Table {
	if len(items) == 0 {
		return Table{Window: window}
	}
	all := make([]int, len(items))
	for at := range items {
		all[at] = at
	}
	return Table{window, []Turn{{all, window}}}
}

// turns returns the solution of the program as turns, ordered so that few items start or stop from one turn to the next.
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

// members returns the indices of a configuration's items in the caller's list, together with those of the items that always run.
func (g *program) members(c config, always []int) []int {
	list := slices.Clone(always)
	for ; !c.empty(); c = c.withoutFirst() {
		list = append(list, int(g.origin[c.first()]))
	}
	slices.Sort(list)
	return list
}

// orderRuns orders the runs of a table so that few items start or stop from one run to the next, the last run being followed by the first.
// It builds a nearest-neighbour tour from every start and returns the one with fewest changes, the first of equal ones. Runs are few, so
// trying all starts costs little; finding the best tour of all would not be worth its search.
func orderRuns(runs []run) []run {
	best := tour(runs, 0)
	for start := 1; start < len(runs); start++ {
		if t := tour(runs, start); countChanges(t) < countChanges(best) {
			best = t
		}
	}
	return best
}

// tour orders the runs from a start by always appending the remaining run that changes the fewest items.
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

// nearest returns the index of the run that differs least from r, the first of equal ones.
func nearest(r run, others []run) int {
	best := 0
	for k := range others {
		if changes(r.config, others[k].config) < changes(r.config, others[best].config) {
			best = k
		}
	}
	return best
}

// countChanges returns how often an item starts or stops in one window.
func countChanges(t []run) int {
	sum := 0
	for k := range t {
		sum += changes(t[k].config, t[(k+1)%len(t)].config)
	}
	return sum
}
