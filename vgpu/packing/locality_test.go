package packing

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// wiredNode returns a node of identical GPUs with these localities.
func wiredNode(at ...Locality) *Node {
	n := gpuNode("n", len(at))
	for i := range at {
		n.Slices[i].Locality = at[i]
	}
	return n
}

// atNUMA is a GPU without NVLink at a NUMA node.
func atNUMA(node int) Locality { return Locality{NUMA: node} }

// linked is a GPU of an NVLink set at a NUMA node.
func linked(set, node int) Locality { return Locality{NVLink: set, NUMA: node} }

func TestPlaceByLocality(t *testing.T) {
	used := func(n *Node, slices ...int) *Node {
		for _, i := range slices {
			n = load(n, i, runs(fixed(50, 100)))
		}
		return n
	}
	quads := wiredNode(linked(1, 1), linked(1, 1), linked(1, 1), linked(1, 1), linked(2, 2), linked(2, 2), linked(2, 2), linked(2, 2))
	pairs := wiredNode(linked(1, 1), linked(2, 2), linked(1, 1), linked(2, 2))
	whole := fixed(100, 100)
	other := gpuNode("n", 3)
	other.Slices[0].Reserve = 1 // not equal to the others
	other.Slices[1].Locality, other.Slices[2].Locality = linked(1, 1), linked(1, 1)
	cases := map[string]struct {
		node *Node
		pod  *Pod
		want []int // slices in the order of containers and vGPUs
	}{
		"nothing known: the first":            {gpuNode("n", 4), wide(2, whole), []int{0, 1}},
		"a pair by NVLink":                    {pairs, wide(2, whole), []int{0, 2}},
		"the other pair":                      {used(pairs, 0), wide(2, whole), []int{1, 3}},
		"no pair is free":                     {used(pairs, 0, 1), wide(2, whole), []int{2, 3}},
		"the smallest set that suffices":      {used(quads, 0), wide(3, whole), []int{1, 2, 3}},
		"four leave the broken set":           {used(quads, 0), wide(4, whole), []int{4, 5, 6, 7}},
		"more than a set: the largest first":  {used(quads, 0), wide(5, whole), []int{4, 5, 6, 7, 1}},
		"all of them":                         {quads, wide(8, whole), []int{0, 1, 2, 3, 4, 5, 6, 7}},
		"one NUMA node":                       {wiredNode(atNUMA(1), atNUMA(2), atNUMA(1), atNUMA(2)), wide(2, whole), []int{0, 2}},
		"the smaller NUMA node that suffices": {wiredNode(atNUMA(1), atNUMA(1), atNUMA(1), atNUMA(2), atNUMA(2)), wide(2, whole), []int{3, 4}},
		"NVLink before NUMA":                  {wiredNode(linked(1, 1), atNUMA(2), atNUMA(2), linked(1, 3)), wide(2, whole), []int{0, 3}},
		"NUMA among sets that fit equally":    {wiredNode(linked(1, 1), linked(1, 1), linked(2, 2), linked(2, 2), linked(3, 1), linked(3, 1)), wide(4, whole), []int{0, 1, 4, 5}},
		"the known before the unknown":        {wiredNode(Locality{}, Locality{}, linked(1, 1), linked(1, 1)), wide(2, whole), []int{2, 3}},
		"two containers, a pair":              {pairs, podOf(whole, whole), []int{0, 2}},
		"containers beside each other":        {wiredNode(linked(1, 0), linked(2, 0), linked(3, 0), linked(1, 0), linked(2, 0), linked(2, 0)), withSecond(wide(2, whole), whole), []int{1, 4, 5}},
		"one vGPU: the first":                 {pairs, podOf(whole), []int{0}},
		"a better rank before NVLink":         {used(pairs, 3), podOf(fixed(50, 100), whole), []int{3, 1}},
		"equal but for the reserve":           {other, wide(2, whole), []int{1, 2}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			plan, _, refusal := bestFit(Slots).Place(c.node, c.pod)
			if refusal != Admitted {
				t.Fatal(refusal)
			}
			if diff := cmp.Diff(c.want, slicesOf(plan)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// withSecond adds a container of one vGPU.
func withSecond(p *Pod, s share.Share) *Pod {
	p.Request.Containers = append(p.Request.Containers, podOf(s).Request.Containers...)
	return p
}

func slicesOf(plan Plan) (out []int) {
	for _, picks := range plan {
		for _, p := range picks {
			out = append(out, p.Slice)
		}
	}
	return out
}

// TestNoChoiceIsNearer: no other choice of as many free GPUs has more pairs connected by NVLink or, without NVLink, more pairs at the
// same NUMA node.
func TestNoChoiceIsNearer(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	better := 0 // than the first GPUs
	for range 3000 {
		n := gpuNode("n", 2+random.IntN(7))
		byNUMA := random.IntN(2) == 0
		for i := range n.Slices {
			at := &n.Slices[i].Locality
			if at.NUMA = random.IntN(4); !byNUMA {
				at.NVLink = random.IntN(4)
			}
			if random.IntN(4) == 0 {
				n = load(n, i, runs(fixed(50, 100)))
			}
		}
		pairs := func(chosen []int) (count int) {
			for i, a := range chosen {
				for _, b := range chosen[:i] {
					at, to := n.Slices[a].Locality, n.Slices[b].Locality
					if byNUMA && at.NUMA == to.NUMA && at.NUMA > 0 || at.NVLink == to.NVLink && at.NVLink > 0 {
						count++
					}
				}
			}
			return count
		}
		vgpus := 1 + random.IntN(len(n.Slices))
		plan, _, refusal := bestFit(Slots).Place(n, wide(vgpus, fixed(100, 100)))
		if refusal != Admitted {
			continue
		}
		var free []int
		for i := range n.Loads {
			if n.Loads[i].Empty() {
				free = append(free, i)
			}
		}
		most := 0
		eachChoice(free, vgpus, func(chosen []int) { most = max(most, pairs(chosen)) })
		if got := pairs(slicesOf(plan)); got != most {
			t.Fatalf("%v has %d near pairs where %d can be had: %+v", slicesOf(plan), got, most, n.Slices)
		}
		if most > pairs(free[:vgpus]) {
			better++
		}
	}
	if better < 300 {
		t.Errorf("only %d choices were better than the first GPUs", better)
	}
}

// eachChoice calls visit with each choice of count numbers of the list.
func eachChoice(list []int, count int, visit func([]int)) {
	var chosen []int
	var choose func(from int)
	choose = func(from int) {
		if len(chosen) == count {
			visit(chosen)
			return
		}
		for i := from; i < len(list); i++ {
			chosen = append(chosen, list[i])
			choose(i + 1)
			chosen = chosen[:len(chosen)-1]
		}
	}
	choose(0)
}

// TestLocalityOnlyBreaksTies: localities decide which of equally good slices are taken, and nothing else: not whether a pod fits, why
// it does not, or the rank of a slice.
func TestLocalityOnlyBreaksTies(t *testing.T) {
	random := rand.New(rand.NewPCG(6, 6))
	moved := 0
	for range 3000 {
		plain, pod := randomNode(random, Slots), randomPod(random)
		if random.IntN(2) == 0 {
			plain, pod = gpuNode("n", 2+random.IntN(6)), wide(1+random.IntN(4), fixed(100, 100))
		}
		wired := plain.Clone()
		wired.Slices = slices.Clone(plain.Slices)
		for i := range wired.Slices {
			if wired.Slices[i].Profile == "" {
				wired.Slices[i].Locality = Locality{random.IntN(3), random.IntN(3)}
			}
		}
		packer := bestFit(Slots)
		want, wantRank, wantRefusal := packer.Place(plain, pod)
		got, rank, refusal := packer.Place(wired, pod)
		if refusal != wantRefusal || len(pod.Request.Containers) == 1 && rank != wantRank {
			t.Fatalf("%q of rank %d, without localities %q of rank %d: %+v", refusal, rank, wantRefusal, wantRank, pod)
		}
		if refusal == Admitted && !packer.Admits(wired, pod, got) {
			t.Fatalf("%v is not admitted", got)
		}
		if !cmp.Equal(got, want) {
			moved++
		}
	}
	if moved < 100 {
		t.Errorf("only %d placements differ", moved)
	}
}
