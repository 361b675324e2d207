//go:build !race

// Nothing here is concurrent, and the race detector makes it ten times slower.

package migchurn

import (
	"math"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// The gradient is held against the best that any policy can do on two GPUs, found by value iteration over everything that can
// run on them; first fit shows that there is something to lose.
func TestGradientIsNearTheOptimum(t *testing.T) {
	if testing.Short() {
		t.Skip("iterates over 80,000 states")
	}
	m := model(t, "A100-80GB")
	for _, x := range Mixes {
		w := newWorld(m, x, 1.1)
		best, gradient, first := w.accepted(nil), w.accepted(Gradient(m)), w.accepted(FirstFit)
		t.Logf("%s: optimum %.2f %%, gradient %.2f %%, first fit %.2f %%", x.Name, best, gradient, first)
		if gradient < best-0.5 || gradient > best+0.1 || first > best-1.5 {
			t.Errorf("%s: optimum %.2f %%, gradient %.2f %%, first fit %.2f %%", x.Name, best, gradient, first)
		}
	}
}

// world is two GPUs with Poisson arrivals, as a Markov chain over pairs of states.
type world struct {
	demands []demand
	rates   []float64 // arrivals in a mean lifetime, by demand
	offered float64   // compute slices
	states  []state
	index   map[state]int
	ends    [][]int      // where the end of each instance leads, by state
	grows   [][][]growth // what can be created, by state and demand
}

// state is the memory slices in use on one GPU, and those at which an instance begins: together they tell the instances
// apart, up to ones that use the same slices.
type state struct{ used, begins mig.Slices }

type growth struct {
	start, to int
}

func newWorld(m *mig.Model, x Mix, load float64) *world {
	w := &world{demands: x.demandsOn(m), index: map[state]int{}}
	var weight float64
	for _, d := range w.demands {
		weight += d.weight
	}
	w.offered = load * float64(2*m.Compute)
	for _, d := range w.demands {
		w.rates = append(w.rates, w.offered/meanCompute(w.demands)*d.weight/weight)
	}
	w.visit(state{})
	return w
}

// visit numbers a state and all that can follow it.
func (w *world) visit(s state) int {
	if i, ok := w.index[s]; ok {
		return i
	}
	i := len(w.states)
	w.index[s] = i
	w.states, w.ends, w.grows = append(w.states, s), append(w.ends, nil), append(w.grows, nil)
	grows := make([][]growth, len(w.demands))
	for d, demand := range w.demands {
		l := mig.Layout{Used: s.used}
		for _, start := range l.Starts(demand.profile) {
			next := state{l.With(mig.Instance{Profile: demand.profile, Start: start}).Used, s.begins | 1<<start}
			grows[d] = append(grows[d], growth{start, w.visit(next)})
		}
	}
	w.grows[i] = grows
	for b := range 8 {
		if s.begins>>b&1 == 1 {
			w.ends[i] = append(w.ends[i], w.visit(s.end(b)))
		}
	}
	return i
}

// end removes the instance that begins at b: it reaches to the next one or to the next free slice.
func (s state) end(b int) state {
	s.begins &^= 1 << b
	for s.used>>b&1 == 1 && s.begins>>b&1 == 0 {
		s.used &^= 1 << b
		b++
	}
	return s
}

// accepted returns the percentage of the offered compute slices that a policy accepts in the long run; without a policy, the most
// that one can that refuses nothing that fits. Relative value iteration (Puterman, Markov Decision Processes, 8.5).
func (w *world) accepted(choose Policy) float64 {
	n := len(w.states)
	moves := w.moves(choose)
	total := 16.0 // events in a mean lifetime: at most 14 ends
	for _, r := range w.rates {
		total += r
	}
	value, next := make([]float64, n*n), make([]float64, n*n)
	for {
		low, high := math.Inf(1), math.Inf(-1)
		for a := range n {
			for b := range n {
				gain := w.gain(value, a, b, moves)
				next[a*n+b] = value[a*n+b] + gain/total
				low, high = min(low, gain), max(high, gain)
			}
		}
		for i := range value {
			value[i] = next[i] - next[0]
		}
		if high-low < 0.002*w.offered {
			return 100 * (low + high) / 2 / w.offered
		}
	}
}

// moves says where a policy leads from a pair of states, for each demand: to another pair, or -1. Nil lets gain choose.
func (w *world) moves(choose Policy) [][]int {
	if choose == nil {
		return nil
	}
	n := len(w.states)
	moves := make([][]int, n*n)
	for at := range moves {
		pair := [2]int{at / n, at % n}
		for d, demand := range w.demands {
			gpus := []mig.Layout{{Used: w.states[pair[0]].used}, {Used: w.states[pair[1]].used}}
			gpu, made, ok := choose(gpus, demand.profile)
			moves[at] = append(moves[at], -1)
			for _, g := range w.grows[pair[gpu]][d] {
				if ok && g.start == made.Start {
					to := pair
					to[gpu] = g.to
					moves[at][d] = to[0]*n + to[1]
				}
			}
		}
	}
	return moves
}

// gain returns how fast the pair of states earns accepted slices and value.
func (w *world) gain(value []float64, a, b int, moves [][]int) (gain float64) {
	n := len(w.states)
	here := value[a*n+b]
	for _, to := range w.ends[a] {
		gain += value[to*n+b] - here
	}
	for _, to := range w.ends[b] {
		gain += value[a*n+to] - here
	}
	for d := range w.demands {
		best := math.Inf(-1)
		switch {
		case moves == nil:
			for _, g := range w.grows[a][d] {
				best = max(best, value[g.to*n+b])
			}
			for _, g := range w.grows[b][d] {
				best = max(best, value[a*n+g.to])
			}
		case moves[a*n+b][d] >= 0:
			best = value[moves[a*n+b][d]]
		}
		if best > math.Inf(-1) {
			gain += w.rates[d] * (float64(w.demands[d].profile.Compute) + best - here)
		}
	}
	return gain
}
