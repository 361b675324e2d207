package packing

import (
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// idle returns a share that requests no SM-time, like that of an instance that runs only in time that others leave.
func idle(s share.Share) share.Share { return share.Share{Memory: s.Memory} }

func TestAdmitBesideIdleShares(t *testing.T) {
	resident := runs(idle(fixed(60, 100)))
	boxed := as(resident, func(r *Resident) { r.Model = Rectangles })
	boxes := func(r *Rules) { r.Model = Rectangles }
	large := runs(idle(withMemory(fixed(60, 100), 79)))
	checkAll(t, map[string]admission{
		"all of the SM-time":          {load: loadOf(resident), share: fixed(100, 99), wantClass: share.MPS},
		"all of it as a rectangle":    {load: loadOf(boxed), rules: boxes, share: fixed(100, 100), terms: share.Terms{Isolation: share.MPS}, wantClass: share.MPS},
		"the whole slice":             {load: loadOf(resident), share: fixed(100, 100), want: OtherClass},
		"beside one that is not idle": {load: loadOf(resident, runs(fixed(60, 100))), share: fixed(40, 100), wantClass: share.MPS},
		"exclusive":                   {load: loadOf(resident), share: fixed(50, 100), terms: share.Terms{Isolation: share.Exclusive}, want: OtherClass},
		"another class":               {load: loadOf(resident), share: elastic(10, 20), want: OtherClass},
		"another model":               {load: loadOf(boxed), share: fixed(50, 100), want: OtherPackingModel},
		"another tenant": {
			load: loadOf(as(resident, func(r *Resident) { r.Tenant = "b" })), share: fixed(50, 100), want: OtherTenant},
		"its memory": {load: loadOf(large), share: withMemory(fixed(50, 100), 2), want: NoMemory},
		"its place":  {load: loadOf(resident), slice: func(s *Slice) { s.MaxShares = 1 }, share: fixed(50, 100), want: SliceFull},
		"its limits are gone": {
			load: loadOf(as(runs(idle(elastic(10, 100))), func(r *Resident) { r.Class = share.Elastic })), share: elastic(10, 100), wantClass: share.Elastic},
		"an idle one that arrives": {load: loadOf(runs(fixed(100, 99))), share: idle(fixed(50, 50)), wantClass: share.MPS},
		"as a rectangle":           {load: loadOf(as(runs(fixed(100, 50)), func(r *Resident) { r.Model = Rectangles })), rules: boxes, share: idle(fixed(50, 50)), wantClass: share.MPS},
	})
}

// TestAdmitOnOverfullSlice: after a pod is raised, a slice may have more on it than it can hold. It then admits nothing, and
// counts as having no free SM-time.
func TestAdmitOnOverfullSlice(t *testing.T) {
	for _, m := range []Model{Slots, Rectangles} {
		t.Run(string(m), func(t *testing.T) {
			n := gpuNode("n", 1)
			for range 2 {
				n.Loads[0].Add(as(runs(fixed(60, 100)), func(r *Resident) { r.Model = m }))
			}
			for _, ranker := range []Ranker{BestArea{}, DiluWeights, Balance{Terms: AllTerms, Demand: &Demand{}}} {
				p := Packer{Rules: NewRules(m), Ranker: ranker}
				if _, _, refusal := p.Place(n, podOf(fixed(1, 1))); refusal != NoSMTime {
					t.Errorf("%T: %q", ranker, refusal)
				}
				if _, _, refusal := p.Place(n, podOf()); refusal != Admitted {
					t.Errorf("%T: a pod without vGPUs: %q", ranker, refusal)
				}
			}
			if c := CapacityOf(n, n.CPU); c.FreeGPU != 0 {
				t.Errorf("%d milli-GPU are free", c.FreeGPU)
			}
		})
	}
}

// TestIdleSharesTakeMemoryAndPlaces: an idle share takes memory and a place of the slice, and nothing else.
func TestIdleSharesTakeMemoryAndPlaces(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 9))
	admitted := 0
	for _, m := range []Model{Slots, Rectangles} {
		rules := NewRules(m)
		for range 3000 {
			s, without, with := gpu("g", "A100"), &Load{}, &Load{}
			s.MaxShares, s.Reserve = 6, 50
			small := s // the slice without what idle shares take
			for range 1 + random.IntN(5) {
				r := as(runs(withMemory(fixed(share.PerMille(5+random.IntN(60)), share.PerMille(5+random.IntN(90))), share.Bytes(1+random.IntN(30)))),
					func(r *Resident) { r.Model = m })
				if with.Empty() || random.IntN(2) == 0 {
					without.Add(r)
				} else {
					r.Share = idle(r.Share)
					small.MaxShares--
					small.Memory -= r.Share.Memory
				}
				with.Add(r)
			}
			ask := ShareRequest{Tenant: "a", Share: withMemory(fixed(share.PerMille(5+random.IntN(60)), share.PerMille(5+random.IntN(90))), 1)}
			_, want := rules.Admit(&small, without, ask)
			if _, got := rules.Admit(&s, with, ask); got != want && want != TooLarge {
				t.Fatalf("%q beside %+v, want %q as beside %+v", got, with.Residents(), want, without.Residents())
			}
			if want == Admitted {
				admitted++
			}
		}
	}
	if admitted < 500 || admitted > 5500 {
		t.Errorf("%d of 6000 were admitted: the cases are one-sided", admitted)
	}
}

// TestIdleSlicesRankAsUsed: a slice with an idle share cannot be given to a pod that needs a whole slice, so it is not
// ranked as empty.
func TestIdleSlicesRankAsUsed(t *testing.T) {
	n := gpuNode("n", 2)
	n.Loads[1].Add(runs(idle(fixed(50, 100))))
	d, _ := smallWorld() // halves and wholes, equally often
	var v nodeView
	if d.fillView(n, &v, nil); v.usable[0].slices+v.usable[1].slices != 3 {
		t.Errorf("%d halves and wholes, in whatever order, fit; want 2 and 1", []int32{v.usable[0].slices, v.usable[1].slices})
	}
	for _, ranker := range []Ranker{BestArea{}, DiluWeights, Balance{Demand: &Demand{}}} {
		plan, _, refusal := Packer{Rules: NewRules(Slots), Ranker: ranker}.Place(n, podOf(fixed(50, 100)))
		if refusal != Admitted || plan[0][0].Slice != 1 {
			t.Errorf("%T: plan %v, %q; want the slice in use", ranker, plan, refusal)
		}
	}
	if n.isUnused() {
		t.Error("the node counts as unused")
	}
}
