package packing

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// sorted is like Best without its caches: it places the pod on every node anew, and sorts all nodes.
func sorted(p Packer, nodes []*Node, pod *Pod, k int, eligible func(int) bool) []Candidate {
	all := []Candidate{}
	for i, n := range nodes {
		if n == nil || eligible != nil && !eligible(i) {
			continue
		}
		if _, rank, refusal := p.Place(n, pod); refusal == Admitted {
			all = append(all, Candidate{Node: i, Rank: rank})
		}
	}
	slices.SortFunc(all, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(nodes[a.Node].Name, nodes[b.Node].Name))
	})
	return all[:min(k, len(all))]
}

// fleetPods returns a few pods by key: parts of GPUs, whole GPUs, two GPUs, and a pod without any.
func fleetPods() map[string]*Pod {
	return map[string]*Pod{
		"small": podOf(fixed(10, 100)), "half": podOf(fixed(50, 100)), "turns": podOf(fixed(60, 30)), "whole": podOf(fixed(100, 100)),
		"two": wide(2, fixed(100, 100)), "sidecar": podOf(fixed(60, 100), fixed(60, 100)), "none": podOf(),
	}
}

func TestBestEqualsSortingAllNodes(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	demand, _, _ := randomWorld(random)
	packers := []Packer{bestFit(Slots), {Rules: NewRules(Slots), Ranker: Balance{Terms: AllTerms, Demand: demand}}}
	packer := packers[1]
	const size = 12
	nodes := make([]*Node, size)
	fleet := NewFleet(packer, size)
	pods := fleetPods()
	keys := slices.Sorted(maps.Keys(pods))
	version := int64(0)
	for step := range 600 {
		switch random.IntN(10) {
		case 0, 1, 2, 3:
			i := random.IntN(size)
			nodes[i] = randomNode(random, Slots)
			nodes[i].Name = fmt.Sprint("n", random.IntN(3)*100+i) // names differ, and are not in the order of indices
			nodes[i].CPU = MilliCPU(random.IntN(3)) * 16_000
			version++
			fleet.Set(i, nodes[i], version)
		case 4:
			packer = packers[random.IntN(2)]
			fleet.SetPacker(packer)
		}
		key, k := keys[random.IntN(len(keys))], random.IntN(size+3)
		var eligible func(int) bool
		if random.IntN(2) == 0 {
			odd := random.IntN(2)
			eligible = func(i int) bool { return i%2 == odd }
		}
		got, want := fleet.Best(key, pods[key], k, eligible), sorted(packer, nodes, pods[key], k, eligible)
		if len(got)+len(want) > 0 && !gocmp.Equal(got, want) {
			t.Fatalf("step %d, %s, k = %d: %s", step, key, k, gocmp.Diff(want, got))
		}
	}
}

func TestBestAsksOnlyAboutChangedNodes(t *testing.T) {
	counter := &countingRanker{}
	fleet := NewFleet(Packer{Rules: NewRules(Slots), Ranker: counter}, 3)
	node := func(i int) *Node {
		n := gpuNode(fmt.Sprint("n", i), 1)
		n.CPU += MilliCPU(i) // no two alike
		return n
	}
	for i := range 3 {
		fleet.Set(i, node(i), 1)
	}
	pod := podOf(fixed(50, 100))
	for _, step := range []struct {
		do   func()
		want int
	}{
		{func() {}, 3},
		{func() {}, 0},
		{func() { fleet.Set(1, node(1), 2) }, 1},
		{func() { fleet.SetPacker(fleet.packer) }, 3},
	} {
		step.do()
		counter.asked = 0
		if best := fleet.Best("half", pod, 5, nil); len(best) != 3 {
			t.Fatalf("%d candidates of three nodes", len(best))
		}
		if counter.asked != step.want {
			t.Errorf("asked %d times, want %d", counter.asked, step.want)
		}
	}
}

// TestBestAsksOnceAboutFreshTwins: of several empty nodes that are alike, only one is evaluated. A used node, or one of
// another kind, is not considered alike.
func TestBestAsksOnceAboutFreshTwins(t *testing.T) {
	counter := &countingRanker{}
	fleet := NewFleet(Packer{Rules: NewRules(Slots), Ranker: counter}, 6)
	pod := podOf(fixed(50, 100))
	for i := range 6 {
		n := gpuNode(fmt.Sprint("n", i), 1)
		switch i {
		case 3:
			n.Take(Slots, pod, Plan{{{Slice: 0, Class: share.MPS}}})
		case 5:
			n.Slices[0].Memory++
		}
		fleet.Set(i, n, 1)
	}
	if best := fleet.Best("half", pod, 6, nil); len(best) != 6 || counter.asked != 3 {
		t.Errorf("%d candidates, asked %d times, want 6 and 3: of 0-2 and 4, 3, and 5", len(best), counter.asked)
	}
}

type countingRanker struct{ asked int }

func (c *countingRanker) Rank(*Node, *Pod, []Choice) Rank {
	c.asked++
	return 0
}

func TestBestOfEqualsGoesByName(t *testing.T) {
	fleet := NewFleet(bestFit(Slots), 3)
	for i, name := range []string{"c", "a", "b"} {
		fleet.Set(i, gpuNode(name, 1), 1)
	}
	best := fleet.Best("half", podOf(fixed(50, 100)), 2, nil)
	if len(best) != 2 || fleet.Node(best[0].Node).Name != "a" || fleet.Node(best[1].Node).Name != "b" {
		t.Errorf("got %v", best)
	}
}

func TestNodesNeverSetAreNoCandidates(t *testing.T) {
	fleet := NewFleet(bestFit(Slots), 3)
	pod := podOf(fixed(50, 100))
	if best := fleet.Best("half", pod, 3, nil); len(best) != 0 {
		t.Errorf("candidates %v of an unknown fleet", best)
	}
	fleet.Set(2, gpuNode("n", 1), 7)
	if best := fleet.Best("half", pod, 3, nil); len(best) != 1 || best[0].Node != 2 {
		t.Errorf("candidates %v, want node 2", best)
	}
	if fleet.Len() != 3 || fleet.Version(0) != 0 || fleet.Version(2) != 7 || fleet.Node(0) != nil {
		t.Errorf("%d nodes, versions %d and %d", fleet.Len(), fleet.Version(0), fleet.Version(2))
	}
	for _, k := range []int{0, -1} {
		if best := fleet.Best("half", pod, k, nil); len(best) != 0 {
			t.Errorf("%d best: %v", k, best)
		}
	}
}

func TestColumnsBeyondTheMostAreForgotten(t *testing.T) {
	counter := &countingRanker{}
	fleet := NewFleet(Packer{Rules: NewRules(Slots), Ranker: counter}, 1)
	fleet.Set(0, gpuNode("n", 1), 1)
	pod := podOf(fixed(50, 100))
	ask := func(key string) int {
		counter.asked = 0
		fleet.Best(key, pod, 1, nil)
		return counter.asked
	}
	ask("") // the empty key is a key like any other
	for i := range maxCaches - 1 {
		ask(fmt.Sprint(i))
	}
	if ask("") != 0 {
		t.Error("forgotten too early")
	}
	if ask("one more") != 1 || len(fleet.caches) != maxCaches {
		t.Errorf("%d caches", len(fleet.caches))
	}
	if ask("") != 0 || ask("1") != 0 {
		t.Error("a rankCache in use was forgotten")
	}
	if ask("0") != 1 || ask("2") != 1 || ask("") != 0 {
		t.Error("the caches unused for longest were kept")
	}
}

// TestCachedRank: the rank of a node is cached once Best has evaluated the node, until the node changes.
func TestCachedRank(t *testing.T) {
	nodes := []*Node{gpuNode("a", 1), load(gpuNode("b", 1), 0, runs(fixed(70, 100)))}
	fleet := NewFleet(bestFit(Slots), 3) // the third is never set
	fleet.Set(0, nodes[0], 1)
	fleet.Set(1, nodes[1], 2)
	pod := podOf(fixed(50, 100))
	expect := func(when string, want ...bool) {
		t.Helper()
		for i, known := range want {
			rank, refusal, got := fleet.CachedRank("half", i)
			if got != known || !got && (rank != 0 || refusal != Admitted) {
				t.Errorf("%s: node %d: %v, %v, known %v, want %v", when, i, rank, refusal, got, known)
			}
			if got {
				if _, wantRank, wantRefusal := bestFit(Slots).Place(nodes[i], pod); refusal != wantRefusal || refusal == Admitted && rank != wantRank {
					t.Errorf("%s: node %d: %v, %v, want %v, %v", when, i, rank, refusal, wantRank, wantRefusal)
				}
			}
		}
	}
	expect("before", false, false, false)
	fleet.Best("half", pod, 1, nil)
	expect("after", true, true, false)
	nodes[1] = gpuNode("b", 1)
	fleet.Set(1, nodes[1], 3)
	expect("when a node has changed", true, false, false)
	fleet.Best("half", pod, 1, nil)
	expect("after another time", true, true, false)
	if _, _, known := fleet.CachedRank("other", 0); known {
		t.Error("known for a key that was never asked about")
	}
}

// TestCapacityOfNodesNeverSet: BestWithCapacity skips nodes that were never set, even for a pod without a share.
func TestCapacityOfNodesNeverSet(t *testing.T) {
	fleet := NewFleet(bestFit(Slots), 2)
	for name, pod := range fleetPods() {
		pod.CPU, pod.RAM = 0, 0 // as much as a node that was never set has
		if c, ok := fleet.BestWithCapacity(name, pod); ok {
			t.Errorf("%s: node %d, which was never set", name, c.Node)
		}
	}
	fleet.Set(1, gpuNode("a", 2), 1)
	for name, pod := range fleetPods() {
		if c, ok := fleet.BestWithCapacity(name, pod); !ok || c.Node != 1 {
			t.Errorf("%s: node %d, %v, want the only one", name, c.Node, ok)
		}
	}
}
