package cluster

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

func TestEveryTryHasAName(t *testing.T) {
	if got, want := slices.Sorted(maps.Keys(tries)), slices.Sorted(slices.Values(Tries())); !slices.Equal(got, want) {
		t.Errorf("tries are %v, named are %v", got, want)
	}
}

// Every try runs to the end, twice the same, and does not allocate less than random choice.
func TestTriesAreRepeatable(t *testing.T) {
	var nodes []Node
	for range 12 {
		nodes = append(nodes, node(96, 8), node(32, 2))
	}
	var pods []Pod
	for range 20 {
		pods = append(pods, pod(8, 1, 1000), pod(3, 1, 810), pod(4, 1, 470), pod(4, 1, 160), pod(12, 0, 0), pod(40, 2, 1000))
	}
	config := Config{Nodes: nodes, Pods: pods, Order: RandomOrder, Load: 1.3, Seed: 2, Policy: "random"}
	random := run(t, config).AllocatedEnd
	for _, config.Policy = range Tries() {
		t.Run(config.Policy, func(t *testing.T) {
			first, second := run(t, config), run(t, config)
			if first.AllocatedEnd != second.AllocatedEnd || first.Decisions != second.Decisions {
				t.Errorf("allocates %v %% in one run and %v %% in another", first.AllocatedEnd, second.AllocatedEnd)
			}
			if first.AllocatedEnd < random {
				t.Errorf("allocates %v %%, random choice %v %%", first.AllocatedEnd, random)
			}
		})
	}
}

// Pods of 600 have a device for themselves, so that they are worth one and pods of 400, which are rarer, take what they leave for nothing.
func TestPrices(t *testing.T) {
	list := []part{{milli: 400, count: 1, price: 0.4}, {milli: 600, count: 3, price: 0.6}}
	price(list)
	if math.Abs(list[0].price) > 0.05 || math.Abs(list[1].price-1) > 0.05 {
		t.Errorf("prices %v and %v, want 0 and 1", list[0].price, list[1].price)
	}
	lost := lostOf([]part{{milli: 500, count: 2, price: 0.5}, {milli: 1000, count: 1, price: 1}})
	for rest, want := range map[int]float64{0: 0, 499: 499, 500: 0, 700: 200, 1000: 0} {
		if math.Abs(lost[rest]-want) > 5 {
			t.Errorf("of %d thousandths %v are lost, want %v", rest, lost[rest], want)
		}
	}
}

func TestTogetherSortsThoseThatWait(t *testing.T) {
	var pods []Pod
	for range 100 {
		pods = append(pods, pod(1, 1, 300), pod(2, 1, 1000), pod(1, 1, 1000))
	}
	s := simulation(t, Config{Nodes: []Node{node(96, 8)}, Pods: pods, Policy: "together", Load: 20})
	var seen []*shape
	for next := range s.decisions() {
		seen = append(seen, next)
	}
	for i := range seen[1:] {
		a, b := seen[i].pod, seen[i+1].pod
		if (i+1)%window != 0 && (a.gpu() < b.gpu() || a.gpu() == b.gpu() && a.CPU < b.CPU) {
			t.Fatalf("pod %d requests more than that before it", i+1)
		}
	}
	if len(seen) < 2*window {
		t.Errorf("%d pods were decided", len(seen))
	}
}

// Looking ahead leaves every node as it was.
func TestAheadUndoesWhatItTries(t *testing.T) {
	pods := []Pod{pod(4, 1, 300), pod(4, 1, 500), pod(8, 1, 1000)}
	s := simulation(t, Config{Nodes: []Node{node(64, 2), node(64, 4), node(32, 8)}, Pods: pods, Policy: "ahead"})
	a := s.policy.(*ahead)
	for range 5 {
		s.decide(s.shapes[0])
	}
	var before []*packing.Node
	for _, n := range a.nodes {
		before = append(before, n.Clone())
	}
	if _, _, ok := a.choose(s.shapes[1]); !ok {
		t.Fatal("no room")
	}
	for i, n := range a.nodes {
		if !n.Equals(before[i]) {
			t.Errorf("node %d has changed", i)
		}
	}
}
