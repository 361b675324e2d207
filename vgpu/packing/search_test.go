package packing

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Whatever the search tried in vain, its undo puts back to the last byte (invariant 7 of the specification).
func TestUndoRestoresEveryLoad(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 3))
	failed, least := 0, searchBudget
	for range 3000 {
		n, pod := randomNode(random, Slots), randomPod(random)
		s := search{packer: bestFit(Slots), node: n.Clone(), pod: pod, budget: searchBudget}
		before := totals(s.node)
		found := s.placeContainer(0)
		least = min(least, s.budget)
		if found {
			continue
		}
		failed++
		if diff := cmp.Diff(before, totals(s.node)); diff != "" || len(s.chosen) != 0 {
			t.Fatalf("%d choices left, loads differ: %s", len(s.chosen), diff)
		}
	}
	if failed < 500 {
		t.Errorf("only %d searches failed", failed)
	}
	if least < searchBudget/2 {
		t.Errorf("a search on at most four slices left only %d of its budget", least)
	}
}

// Undo in the reverse order of many takes gives back each state on the way.
func TestUndoStepByStep(t *testing.T) {
	s := search{packer: bestFit(Slots), node: gpuNode("n", 2), pod: podOf(fixed(10, 50))}
	var states []string
	var undos []func()
	for i := range 12 {
		states = append(states, totals(s.node))
		undos = append(undos, s.choose(0, option{Pick: Pick{Slice: i % 2}}))
	}
	for i := len(undos) - 1; i >= 0; i-- {
		undos[i]()
		if diff := cmp.Diff(states[i], totals(s.node)); diff != "" {
			t.Fatalf("after undoing step %d: %s", i, diff)
		}
	}
}

func totals(n *Node) string {
	var out string
	for i := range n.Loads {
		l := &n.Loads[i]
		out += fmt.Sprintln(l.memory, l.requested, l.limits, l.items, l.weights, l.residents)
	}
	return out
}

// A large pod on a large node stays far within the budget, be it placed or not.
func TestBudgetOfLargePods(t *testing.T) {
	cases := map[string]struct {
		pod  *Pod
		want bool
	}{
		"sixteen GPUs":                    {wide(16, fixed(100, 100)), true},
		"eight containers of half a GPU":  {podOf(fixed(50, 100), fixed(50, 100), fixed(50, 100), fixed(50, 100), fixed(50, 100), fixed(50, 100), fixed(50, 100), fixed(50, 100)), true},
		"eight GPUs and a small sidecar":  {withSidecar(wide(8, fixed(100, 100)), 10), true},
		"fifteen GPUs and a tall sidecar": {withSidecar(wide(15, fixed(100, 100)), 100), true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := search{packer: bestFit(Slots), node: gpuNode("n", 16), pod: c.pod, budget: searchBudget}
			if got := s.placeContainer(0); got != c.want || s.budget < searchBudget*9/10 {
				t.Errorf("placed: %v, budget left %d", got, s.budget)
			}
		})
	}
}

// A tenant can ask for what only looks placeable: here every container fits alone and all of them never do. To find that out
// for sure takes for ever; the scheduler must not try, as it asks every node of the cluster.
func TestPodsMadeToBeSearchedForLong(t *testing.T) {
	pod := podOf()
	for i := range share.PerMille(17) {
		pod.Request.Containers = append(pod.Request.Containers, podOf(fixed(34+i%3, 100)).Request.Containers...)
	}
	counter := &countingRanker{}
	_, _, refusal := (Packer{Rules: NewRules(Slots), Ranker: counter}).Place(gpuNode("n", 8), pod)
	if refusal != NoJointPlacement || counter.asked > 8*searchBudget {
		t.Errorf("%q after %d slices were ranked", refusal, counter.asked)
	}
}

// The most vGPUs that a pod can have find their slices, also where most slices share a device with one that is taken.
func TestBudgetOfTheLargestPods(t *testing.T) {
	single := podOf()
	for range share.MaxVGPUs {
		single.Request.Containers = append(single.Request.Containers, podOf(fixed(10, 100)).Request.Containers...)
	}
	instances := NewNode("mig", nil, 64000, 256<<30)
	for i := range 32 * 7 {
		instances.Slices = append(instances.Slices, instanceOf(fmt.Sprint("m", i), fmt.Sprint("d", i/7), "1g.10gb"))
	}
	instances.Loads = make([]Load, len(instances.Slices))
	pairs := podOf()
	for range 2 {
		pairs.Request.Containers = append(pairs.Request.Containers, wide(32, fixed(50, 100)).Request.Containers...)
	}
	pairs.Request.Slice = share.AnyMIG
	for name, c := range map[string]struct {
		node *Node
		pod  *Pod
	}{"64 containers": {gpuNode("n", 8), single}, "32 devices, twice": {instances, pairs}} {
		t.Run(name, func(t *testing.T) {
			if _, _, refusal := bestFit(Slots).Place(c.node, c.pod); refusal != Admitted {
				t.Error(refusal)
			}
		})
	}
}
