package packing

import (
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// swapGPU returns a GPU that takes shares of class swap: it has 8 GiB, may have shares of 6 GiB more in host memory, and each share keeps half a GiB.
func swapGPU(id string) Slice {
	s := gpu(id, "A100")
	s.Memory, s.MaxShares = 8<<30, 4
	s.Classes = []share.Isolation{share.Exclusive, share.MPS, share.Elastic, share.Swap}
	s.Swap = SwapSpace{Host: 6 << 30, Kept: 512 << 20}
	return s
}

// swapping returns a share of class swap.
func swapping(memory share.Bytes) Resident {
	return Resident{Tenant: "a", Model: Slots, Class: share.Swap, Share: withMemory(fixed(100, 100), memory)}
}

func TestAdmitSwap(t *testing.T) {
	swap := share.Terms{Isolation: share.Swap}
	whole := func(gib share.Bytes) share.Share { return withMemory(fixed(100, 100), gib) }
	ofOther := swapping(2)
	ofOther.Tenant = "b"
	checkAll(t, map[string]admission{
		"alone":                       {slice: func(s *Slice) { *s = swapGPU("g") }, terms: swap, share: whole(8), wantClass: share.Swap},
		"larger than the slice":       {slice: func(s *Slice) { *s = swapGPU("g") }, terms: swap, share: whole(9), want: TooLarge},
		"all of the time of each":     {slice: func(s *Slice) { *s = swapGPU("g") }, load: loadOf(swapping(4), swapping(4)), terms: swap, share: whole(4), wantClass: share.Swap},
		"no room beside what is kept": {slice: func(s *Slice) { *s = swapGPU("g") }, load: loadOf(swapping(2)), terms: swap, share: whole(8), want: NoMemory},
		"no room for those there":     {slice: func(s *Slice) { *s = swapGPU("g") }, load: loadOf(swapping(8)), terms: swap, share: whole(1), want: NoMemory},
		"no room on the host":         {slice: func(s *Slice) { *s = swapGPU("g") }, load: loadOf(swapping(7), swapping(6)), terms: swap, share: whole(2), want: NoMemory},
		"all of slice and host":       {slice: func(s *Slice) { *s = swapGPU("g") }, load: loadOf(swapping(7), swapping(6)), terms: swap, share: whole(1), wantClass: share.Swap},
		"beside a share of mps":       {slice: func(s *Slice) { *s = swapGPU("g") }, load: loadOf(runs(withMemory(fixed(10, 100), 1))), terms: swap, share: whole(1), want: OtherClass},
		"mps beside it":               {slice: func(s *Slice) { *s = swapGPU("g") }, load: loadOf(swapping(1)), share: withMemory(fixed(10, 100), 1), want: OtherClass},
		"whole beside it":             {slice: func(s *Slice) { *s = swapGPU("g") }, load: loadOf(swapping(1)), share: whole(1), want: OtherClass},
		"another namespace":           {slice: func(s *Slice) { *s = swapGPU("g") }, load: loadOf(ofOther), terms: swap, share: whole(1), want: OtherTenant},
		"another one where they mix":  {slice: func(s *Slice) { *s = swapGPU("g"); s.MixTenants = true }, load: loadOf(ofOther), terms: swap, share: whole(1), want: OtherTenant},
		"more than the device IDs":    {slice: func(s *Slice) { *s = swapGPU("g") }, load: loadOf(swapping(1), swapping(1), swapping(1), swapping(1)), terms: swap, share: whole(1), want: SliceFull},
		"a node without it":           {terms: swap, share: whole(1), want: NotEnforceable},
		"never unasked":               {slice: func(s *Slice) { *s = swapGPU("g"); s.Classes = []share.Isolation{share.Swap} }, share: whole(1), want: NotEnforceable},
	})
}

// fitInTurn states the rule in other words: any one share fits beside what the others keep, and all together fit in the memory of slice and host.
func fitInTurn(s *Slice, all []share.Bytes) bool {
	sum := share.Bytes(0)
	for i, m := range all {
		held := m
		for j := range all {
			if j != i {
				held += s.Swap.Kept
			}
		}
		if sum += m; held > s.Memory {
			return false
		}
	}
	return sum <= s.Memory+s.Swap.Host
}

// TestSwapSumsNeverExceed places pods of class swap and others in random order, and ends some. What is on a slice always fits there, in turn or at the
// same time, and a pod is refused only if no slice can take it.
func TestSwapSumsNeverExceed(t *testing.T) {
	random := rand.New(rand.NewPCG(22, 2))
	packer := bestFit(Slots)
	shared, refused, beside := 0, 0, 0
	for range 300 {
		n := NewNode("n", []Slice{swapGPU("a"), swapGPU("b"), gpu("c", "A100")}, 64000, 256<<30)
		for range 30 {
			pod := podOf(withMemory(fixed(share.PerMille(10+10*random.IntN(10)), 100), share.Bytes(1+random.IntN(8))))
			if random.IntN(4) > 0 {
				pod.Request.Isolation = share.Swap
			}
			plan, _, refusal := packer.Place(n, pod)
			if want := exists(packer.Rules, n, pod, 0, 0, map[string]bool{}); want != (refusal == Admitted) {
				t.Fatalf("refusal %q, a slice could take it: %t", refusal, want)
			}
			if refusal == Admitted {
				n.Take(Slots, pod, plan)
			} else if refused++; pod.Request.Isolation == share.Swap {
				for i := range n.Slices {
					if s := &n.Slices[i]; s.Swap.Host > 0 && couldTake(s, n.Loads[i].Residents(), pod.Request.Containers[0].Share.Memory) {
						t.Fatalf("refused: %q, and slice %s could take it", refusal, s.ID)
					}
				}
			}
			for i := range n.Slices {
				both := checkSlice(t, &n.Slices[i], n.Loads[i].Residents())
				if both > 1 {
					shared++
				}
				if n.Loads[i].swaps() && n.freeSMTime(i) != 0 {
					t.Fatal("a slice of class swap has SM-time for others")
				}
			}
			if i := random.IntN(len(n.Slices)); random.IntN(3) == 0 && !n.Loads[i].Empty() { // one ends
				rest, gone := Load{}, random.IntN(len(n.Loads[i].Residents()))
				for j, r := range n.Loads[i].Residents() {
					if j != gone {
						rest.Add(r)
					}
				}
				n.Loads[i] = rest
				beside++
			}
		}
	}
	if shared < 500 || refused < 500 || beside < 500 {
		t.Errorf("the cases are one-sided: %d shared in turn, %d refused, %d ended", shared, refused, beside)
	}
}

// couldTake reports whether a slice that is empty or of class swap has room and a place for one more.
func couldTake(s *Slice, residents []Resident, memory share.Bytes) bool {
	all := []share.Bytes{memory}
	for _, r := range residents {
		if r.Class != share.Swap {
			return false
		}
		all = append(all, r.Share.Memory)
	}
	return len(all) <= s.MaxShares && fitInTurn(s, all)
}

// checkSlice checks the shares on a slice, and returns how many of them are of class swap.
func checkSlice(t *testing.T, s *Slice, residents []Resident) int {
	t.Helper()
	var all []share.Bytes
	sum := share.Bytes(0)
	for _, r := range residents {
		if r.Class != residents[0].Class {
			t.Fatalf("slice %s has classes %s and %s", s.ID, residents[0].Class, r.Class)
		}
		all, sum = append(all, r.Share.Memory), sum+r.Share.Memory
	}
	if len(all) == 0 || residents[0].Class != share.Swap {
		if sum > s.Memory {
			t.Fatalf("%d bytes on slice %s", sum, s.ID)
		}
		return 0
	}
	if !fitInTurn(s, all) {
		t.Fatalf("slice %s has %v", s.ID, all)
	}
	return len(all)
}

// TestSwapJoins: under each ranker, a pod of class swap goes to a slice of that class rather than to an empty one.
func TestSwapJoins(t *testing.T) {
	for name, packer := range map[string]Packer{"best fit": bestFit(Slots), "best area": {NewRules(Slots), BestArea{}}} {
		t.Run(name, func(t *testing.T) {
			n := NewNode("n", []Slice{swapGPU("a"), swapGPU("b"), swapGPU("c")}, 64000, 256<<30)
			n.Loads[1].Add(swapping(4))
			pod := podOf(withMemory(fixed(100, 100), 4))
			pod.Request.Isolation = share.Swap
			if plan, _, refusal := packer.Place(n, pod); refusal != Admitted || plan[0][0] != (Pick{1, share.Swap}) {
				t.Errorf("%v, %q", plan, refusal)
			}
		})
	}
}
