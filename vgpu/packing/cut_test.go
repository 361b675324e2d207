package packing

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestCutIsTheFewestParts checks cuts against their definition: each part is on a device of its own that admits it; all parts except the last
// take all that is free on their device; the parts add up to the model; and no fewer devices have enough memory. There is a cut if and only if
// all devices together have enough.
func TestCutIsTheFewestParts(t *testing.T) {
	random := rand.New(rand.NewPCG(21, 21))
	rules := NewRules(Slots)
	cut, refused, several := 0, 0, 0
	for i := range 4000 {
		n := stored(randomNode(random, Slots))
		if random.IntN(2) == 0 {
			randomKeys(random, n)
		}
		model := ShareRequest{
			Tenant: "a", Terms: share.Terms{Slice: []string{share.WholeGPU, share.WholeGPU, share.AnyMIG}[random.IntN(3)], AntiAffinity: []string{"", "x"}[random.IntN(2)]},
			Share: withMemory(fixed(share.PerMille(10+10*random.IntN(5)), 100), share.Bytes(1+random.IntN(16))),
		}
		if random.IntN(4) == 0 {
			model.Terms.Weights = weights(1, 2)
			for s := range n.Loads { // which are on some slices
				if !n.Loads[s].Empty() && random.IntN(2) == 0 {
					n.Loads[s].addWeights("a", model.Terms.Weights)
				}
			}
		}
		barred := random.IntN(5) // this slice is not usable
		usable := func(slice int) bool { return slice != barred }
		parts, ok := rules.Cut(n, model, usable)
		free := map[string]share.Bytes{} // of the devices that admit a part
		for s := range n.Slices {
			part := model
			if part.Share.Memory = freeFor(n, s, model); part.Share.Memory > 0 && usable(s) {
				if _, refusal := rules.AdmitOn(n, s, part); refusal == Admitted {
					free[n.Slices[s].Device] = max(free[n.Slices[s].Device], part.Share.Memory)
				}
			}
		}
		if fewest := fewestDevices(free, model.Share.Memory); len(parts) != fewest || ok != (fewest > 0) {
			t.Fatalf("set %d: %d parts, %t; the fewest are %d of %v for %d", i, len(parts), ok, fewest, free, model.Share.Memory)
		}
		if !ok {
			refused++
			continue
		}
		cut++
		var sum share.Bytes
		after := n.Clone()
		for at, p := range parts {
			part := model
			part.Share.Memory = p.Memory
			class, refusal := rules.Admit(&after.Slices[p.Slice], &after.Loads[p.Slice], part)
			if refusal != Admitted || class != p.Class || at < len(parts)-1 && p.Memory != freeFor(n, p.Slice, model) {
				t.Fatalf("set %d: part %d of %d: %+v: %v", i, at, len(parts), p, refusal)
			}
			after.Loads[p.Slice].Add(part.resident(Slots, class))
			sum += p.Memory
			if at > 0 && (freeFor(n, parts[at-1].Slice, model) < freeFor(n, p.Slice, model) || sameDevice(n, parts[:at], p)) {
				t.Fatalf("set %d: part %d of %v is on a device with more memory than the one before, or on the same", i, at, parts)
			}
		}
		if sum != model.Share.Memory {
			t.Fatalf("set %d: the parts are %d of %d", i, sum, model.Share.Memory)
		}
		if len(parts) > 1 {
			several++
		}
	}
	if cut < 300 || refused < 300 || several < 100 {
		t.Errorf("%d cut, %d of them into several parts, %d refused: the cases are one-sided", cut, several, refused)
	}
}

// freeFor returns the memory that a slice has for a part of the model, in addition to weights that have to be loaded there.
func freeFor(n *Node, slice int, model ShareRequest) share.Bytes {
	free := n.Slices[slice].Memory - n.Loads[slice].Memory()
	for _, w := range model.Terms.Weights {
		free -= max(0, w.Memory-n.Loads[slice].weightsOf(model.Tenant, w.Digest))
	}
	return free
}

func sameDevice(n *Node, parts []Part, p Part) bool {
	return slices.ContainsFunc(parts, func(o Part) bool { return n.Slices[o.Slice].Device == n.Slices[p.Slice].Device })
}

// fewestDevices tries all sets of devices. It returns 0 if even all of them together lack the memory.
func fewestDevices(free map[string]share.Bytes, memory share.Bytes) (fewest int) {
	var list []share.Bytes
	for _, f := range free {
		list = append(list, f)
	}
	for set := range uint(1) << len(list) {
		var sum share.Bytes
		for i, f := range list {
			if set>>i&1 == 1 {
				sum += f
			}
		}
		if count := bits.OnesCount(set); sum >= memory && (fewest == 0 || count < fewest) {
			fewest = count
		}
	}
	return fewest
}

// TestSeveralVGPUsTakeTheMostFreeMemory: several vGPUs that do not share their devices with others get the devices with the most memory, among
// those that ranker and SM-time do not distinguish. Other vGPUs are ranked by what they leave free.
func TestSeveralVGPUsTakeTheMostFreeMemory(t *testing.T) {
	sized := func(gib ...share.Bytes) *Node {
		n := gpuNode("n", len(gib))
		for i, g := range gib {
			n.Slices[i].Memory = g << 30
		}
		return n
	}
	exclusive := func(p *Pod) *Pod { p.Request.Isolation = share.Exclusive; return p }
	for name, tc := range map[string]struct {
		node *Node
		pod  *Pod
		want []int // slices, in ascending order
		dilu []int // with Dilu's ranker, if it differs for what is not part of a model: the fullest one
	}{
		"of three sizes":            {sized(40, 80, 24, 80, 40), wide(3, fixed(100, 100)), []int{0, 1, 3}, nil},
		"of equal sizes":            {sized(40, 40, 40), wide(2, fixed(100, 100)), []int{0, 1}, nil},
		"not whole, but alone":      {sized(40, 80, 80), exclusive(wide(2, fixed(30, 100))), []int{1, 2}, nil},
		"one vGPU":                  {sized(40, 80, 24), podOf(fixed(100, 100)), []int{0}, []int{2}},
		"shared ones":               {sized(40, 80, 80), wide(2, fixed(30, 100)), []int{0, 1}, nil},
		"beside another container":  {sized(40, 80, 24, 80), withSidecar(wide(2, fixed(100, 100)), 10), []int{0, 1, 3}, []int{1, 2, 3}},
		"a device that is in use":   {load(sized(24, 80, 40, 80), 1, runs(fixed(10, 100))), wide(2, fixed(100, 100)), []int{2, 3}, nil},
		"too small for their parts": {sized(40, 80, 24, 80), wide(3, withMemory(fixed(100, 100), 30)), []int{0, 1, 3}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, ranker := range []Ranker{Balance{Demand: &Demand{}}, &countingRanker{}, DiluWeights} {
				packer := Packer{Rules: NewRules(Slots), Ranker: ranker}
				plan, _, refusal := packer.Place(tc.node, tc.pod)
				var on []int
				for _, picks := range plan {
					for _, p := range picks {
						on = append(on, p.Slice)
					}
				}
				slices.Sort(on)
				want := tc.want
				if _, is := ranker.(Complementary); is && tc.dilu != nil {
					want = tc.dilu
				}
				if refusal != Admitted || !slices.Equal(slices.Compact(on), want) {
					t.Errorf("%T: %q on %v, want %v", ranker, refusal, on, want)
				}
			}
		})
	}
}
