package pipeline

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// text writes a partition by the names of its nodes: | between stages, + between parts.
func text(f Function, p Partition) string {
	var stages []string
	for _, s := range p.Stages {
		var parts []string
		for _, part := range s {
			names := ""
			for _, i := range part {
				names += f.Nodes[i].Name
			}
			parts = append(parts, names)
		}
		stages = append(stages, strings.Join(parts, "+"))
	}
	return strings.Join(stages, "|")
}

func rank(t testing.TB, f Function, kinds []Kind) *Ranking {
	t.Helper()
	r, err := Rank(f, kinds)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func texts(t testing.TB, f Function) []string {
	var list []string
	for _, p := range rank(t, f, kinds).Partitions() {
		list = append(list, text(f, p))
	}
	return list
}

// The hand-checked values of eq. 1.
func TestVariation(t *testing.T) {
	for _, c := range []struct {
		times []time.Duration
		want  CV
	}{
		{[]time.Duration{1, 1}, 0},
		{[]time.Duration{1, 3}, 0.5}, // of the population; of a sample it would be 0.707
		{[]time.Duration{7 * ms}, 0},
		{[]time.Duration{10 * ms, 20 * ms, 30 * ms}, 0.408248},
		{[]time.Duration{MaxTime, 1}, 1},
		{nil, 0},
		{[]time.Duration{0, 0}, 0},
	} {
		t.Run(fmt.Sprint(c.times), func(t *testing.T) {
			if got := Variation(c.times); got != c.want {
				t.Errorf("CV of %v is %v, want %v", c.times, got, c.want)
			}
		})
	}
}

func TestRankingByHand(t *testing.T) {
	for name, c := range map[string]struct {
		f    Function
		want []string
	}{
		// Stage times 60; 30, 30; 10, 20, 30; 10, 50: CV 0, 0, 0.41, 0.67.
		"chain": {chain(10, 20, 30), []string{"abc", "ab|c", "a|b|c", "a|bc"}},
		// Of equal CV, the one with fewer transfers.
		"equal": {chain(10, 10, 10), []string{"abc", "a|b|c", "a|bc", "ab|c"}},
		// The branches stay on one slice, or are spread: bc or b+c, which takes 80 instead of 140. CV 0; 0.2 (120, 80); 0.283;
		// 0.447; 0.535 (40, 80, 20); 0.6; 0.616; 0.787 (40, 140, 20); 0.8.
		"diamond": {diamond(), []string{
			"abcd", "ab|cd", "a|b|cd", "a|b|c|d", "a|b+c|d", "a|bcd", "ab|c|d", "a|bc|d", "abc|d",
		}},
		"roots": {Function{Name: "f", Nodes: []Node{node("a", gb, 10*ms), node("b", gb, 20*ms)}}, []string{"ab", "a+b", "a|b"}},
		// b+c takes 20, as a and d do; that is three slices more than one, and two transfers.
		"spread": {Function{Name: "f", Nodes: []Node{
			node("a", gb, 20*ms), node("b", gb, 20*ms, "a"), node("c", gb, 20*ms, "a"), node("d", gb, 20*ms, "b", "c"),
		}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := texts(t, c.f)
			if c.want == nil {
				if !slices.Equal(got[:3], []string{"abcd", "ab|cd", "a|b+c|d"}) {
					t.Errorf("%v", got)
				}
				return
			}
			if sorted := slices.Sorted(slices.Values(got)); !slices.Equal(sorted, slices.Sorted(slices.Values(c.want))) {
				t.Errorf("partitions %v, want %v", sorted, c.want)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("order %v, want %v", got, c.want)
			}
		})
	}
}

// A chain of n nodes has 2^(n-1) partitions, each once; five have 16. The ranking is all of them, by CV.
func TestChains(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for n := 1; n <= MaxNodes; n++ {
		times := make([]int, n)
		for i := range times {
			times[i] = 1 + random.IntN(100)
		}
		f := chain(times...)
		got := texts(t, f)
		want := make([]string, 1<<(n-1)) // by the set of places at which there is a cut
		for cuts := range want {
			for i, node := range f.Nodes {
				if i > 0 && cuts>>(i-1)&1 == 1 {
					want[cuts] += "|"
				}
				want[cuts] += node.Name
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("%d nodes: %d partitions, want %d", n, len(got), len(want))
		}
		ranking := rank(t, f, kinds).Partitions()
		if ranking[0].CV != 0 || !ranking[0].Monolithic() {
			t.Errorf("%d nodes: one stage has a CV of 0 and goes first (U6), not %v", n, ranking[0])
		}
		if !slices.IsSortedFunc(ranking, func(a, b Partition) int { return int(math.Round(1e7 * float64(a.CV-b.CV))) }) {
			t.Errorf("%d nodes: not sorted by CV", n)
		}
	}
}

// The expanded image classification of the paper skips a node for some requests: a chain with a short cut, which changes
// no cut. Its expected time counts for the balance (U23).
func TestConditionalNode(t *testing.T) {
	f := Function{Name: "app 3", Nodes: []Node{
		node("d", gb, 20*ms), node("s", gb, 40*ms, "d"), node("b", gb, 20*ms, "d", "s"), node("g", gb, 20*ms, "b"), node("c", gb, 20*ms, "g"),
	}}
	if got := texts(t, f); len(got) != 16 {
		t.Errorf("%d partitions, want 16: %v", len(got), got)
	}
	f.Nodes[1].Chance = 500
	for _, p := range rank(t, f, kinds).Partitions() {
		if text(f, p) == "d|s|b|g|c" && p.CV != 0 {
			t.Errorf("every stage takes 20 ms on average, but the CV is %v", p.CV)
		}
	}
}

// randomFunction is a graph in a random order of nodes.
func randomFunction(random *rand.Rand, n int) Function {
	f := Function{Name: "f", Transfer: time.Duration(random.IntN(3)) * 5 * ms}
	for i := range n {
		var after []string
		for j := range i {
			if random.IntN(3) == 0 {
				after = append(after, fmt.Sprint(j))
			}
		}
		f.Nodes = append(f.Nodes, node(fmt.Sprint(i), gb*share.Bytes(1+random.IntN(12)), time.Duration(12*(1+random.IntN(5)))*ms, after...))
	}
	random.Shuffle(n, func(i, j int) { f.Nodes[i], f.Nodes[j] = f.Nodes[j], f.Nodes[i] })
	return f
}
