package slot

import "slices"

// ordered arranges the runs of a table so that few pieces start or stop from one to the next, the last being followed
// by the first. Among the nearest-neighbour tours from every start it takes the one with fewest changes, the first among
// equals. Runs are few, so trying all starts costs little; the best tour of all would not be worth its search.
func ordered(runs []run) []run {
	best := tour(runs, 0)
	for start := 1; start < len(runs); start++ {
		if t := tour(runs, start); cost(t) < cost(best) {
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
func cost(t []run) int {
	sum := 0
	for k := range t {
		sum += changes(t[k].config, t[(k+1)%len(t)].config)
	}
	return sum
}
