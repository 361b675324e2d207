package packing

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// as returns a resident modified for one case.
func as(r Resident, change func(*Resident)) Resident {
	change(&r)
	return r
}

func TestAdmitBesideNeighbours(t *testing.T) {
	small := fixed(10, 100)
	other := as(runs(small), func(r *Resident) { r.Tenant = "b" })
	boxed := as(runs(small), func(r *Resident) { r.Model = Rectangles })
	alone := as(runs(small), func(r *Resident) { r.Class = share.Exclusive })
	loose := as(runs(elastic(10, 20)), func(r *Resident) { r.Class = share.Elastic })
	two := func(s *Slice) { s.MaxShares = 2 }
	mix := func(s *Slice) { s.MixTenants = true }
	checkAll(t, map[string]admission{
		"the same tenant":                        {load: loadOf(runs(small)), share: small, wantClass: share.MPS},
		"another tenant":                         {load: loadOf(other), share: small, want: OtherTenant},
		"another tenant where mixing is allowed": {load: loadOf(other), share: small, slice: mix, wantClass: share.MPS},
		"another packing model":                  {load: loadOf(boxed), share: small, want: OtherPackingModel},
		"mixing tenants mixes no models":         {load: loadOf(boxed), share: small, slice: mix, want: OtherPackingModel},
		"beside an exclusive share":              {load: loadOf(alone), share: small, want: OtherClass},
		"exclusive beside a share": {
			load: loadOf(runs(small)), share: small, terms: share.Terms{Isolation: share.Exclusive}, want: OtherClass},
		"exclusive beside exclusive": {
			load: loadOf(alone), share: small, terms: share.Terms{Isolation: share.Exclusive}, want: OtherClass},
		"elastic beside mps":             {load: loadOf(runs(small)), share: elastic(10, 20), want: OtherClass},
		"mps beside elastic":             {load: loadOf(loose), share: small, want: OtherClass},
		"elastic beside elastic":         {load: loadOf(loose), share: elastic(10, 20), wantClass: share.Elastic},
		"one fewer than the most shares": {load: loadOf(runs(small)), slice: two, share: small, wantClass: share.MPS},
		"as many as the most shares":     {load: loadOf(runs(small), runs(small)), slice: two, share: small, want: SliceFull},
		"full, but of another tenant":    {load: loadOf(other, other), slice: two, share: small, want: OtherTenant},
		"full and short of memory":       {load: loadOf(runs(small), runs(withMemory(small, 79))), slice: two, share: small, want: SliceFull},
	})
}

// TestAdmitGivesTheFirstReasonWhateverTheOrder: refusals do not depend on the order in which the neighbours were added.
func TestAdmitGivesTheFirstReasonWhateverTheOrder(t *testing.T) {
	small := fixed(10, 100)
	neighbours := []Resident{
		as(runs(small), func(r *Resident) { r.Tenant = "b" }),
		as(runs(small), func(r *Resident) { r.Model = Rectangles }),
		as(runs(small), func(r *Resident) { r.Class = share.Exclusive }),
	}
	for range 3 {
		neighbours = append(neighbours[1:], neighbours[0])
		admission{load: loadOf(neighbours...), share: small, want: OtherClass}.check(t)
	}
	admission{load: loadOf(neighbours[:2]...), share: small, want: OtherPackingModel}.check(t)
	slices.Reverse(neighbours)
	admission{load: loadOf(neighbours...), share: small, want: OtherClass}.check(t)
}

func TestAdmitRoom(t *testing.T) {
	loose := func(sm, limit share.PerMille) Resident {
		return as(runs(elastic(sm, limit)), func(r *Resident) { r.Class = share.Elastic })
	}
	tall := runs(fixed(60, 40))
	boxes := func(r *Rules) { r.Model = Rectangles }
	wide := fixed(100, 50)
	boxedWide := as(runs(wide), func(r *Resident) { r.Model = Rectangles })
	boxed := as(tall, func(r *Resident) { r.Model = Rectangles })
	reserve := func(part share.PerMille) func(*Slice) { return func(s *Slice) { s.Reserve = part } }
	checkAll(t, map[string]admission{
		"the last of the memory": {load: loadOf(runs(withMemory(fixed(10, 10), 79))), share: fixed(10, 10), wantClass: share.MPS},
		"memory is never shared": {load: loadOf(runs(withMemory(fixed(10, 10), 79))), share: withMemory(fixed(10, 10), 2), want: NoMemory},
		"limits up to γ":         {load: loadOf(loose(10, 50), loose(10, 50)), share: elastic(10, 50), wantClass: share.Elastic},
		"limits beyond γ":        {load: loadOf(loose(10, 50), loose(10, 50)), share: elastic(10, 51), want: OverLimits},
		"requests up to a slice": {load: loadOf(runs(fixed(60, 100))), share: fixed(40, 100), wantClass: share.MPS},
		"too many SMs at once":   {load: loadOf(runs(fixed(60, 100))), share: fixed(41, 90), want: NoSMTime},
		"more area than a slice": {load: loadOf(runs(fixed(100, 60))), share: fixed(100, 41), want: NoSMTime},
		// Three of 60 % SM x 40 % time have 72 % of the area, but no two run at once (F31).
		"three tall shares cannot take turns": {load: loadOf(tall, tall), share: tall.Share, want: NoSMTime},
		"three tall boxes":                    {load: loadOf(boxed, boxed), share: tall.Share, rules: boxes, want: NoSMTime},
		"two tall boxes":                      {load: loadOf(boxed), share: tall.Share, rules: boxes, wantClass: share.MPS},
		// Three of 50 % SM x 60 % time run in pairs, 30 % of the time each; as boxes only two fit (facts 2.2).
		"three pairs by slots": {load: loadOf(runs(fixed(50, 60)), runs(fixed(50, 60))), share: fixed(50, 60), wantClass: share.MPS},
		"three pairs by boxes": {
			load:  loadOf(as(runs(fixed(50, 60)), func(r *Resident) { r.Model = Rectangles }), as(runs(fixed(50, 60)), func(r *Resident) { r.Model = Rectangles })),
			rules: boxes, share: fixed(50, 60), want: NoSMTime},
		"turns that fill the window":     {load: loadOf(runs(fixed(60, 50))), share: fixed(60, 50), wantClass: share.MPS},
		"the reserve is for the changes": {load: loadOf(runs(fixed(60, 50))), share: fixed(60, 50), slice: reserve(50), want: NoSMTime},
		"turns that leave the reserve":   {load: loadOf(runs(fixed(60, 50))), share: fixed(60, 45), slice: reserve(50), wantClass: share.MPS},
		"boxes that fill the window":     {load: loadOf(boxedWide), share: wide, rules: boxes, wantClass: share.MPS},
		"boxes that leave no reserve":    {load: loadOf(boxedWide), share: wide, rules: boxes, slice: reserve(50), want: NoSMTime},
		"boxes that leave the reserve":   {load: loadOf(boxedWide), share: fixed(100, 45), rules: boxes, slice: reserve(50), wantClass: share.MPS},
		"without turns no reserve":       {load: loadOf(runs(fixed(60, 100))), share: fixed(40, 100), slice: reserve(50), wantClass: share.MPS},
	})
}

// TestRectanglesRun: nodes execute slot tables, so whatever is admitted as rectangles must also be admitted as slots. In some of the cases
// the reserve makes the difference.
func TestRectanglesRun(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 18))
	boxes, slots := NewRules(Rectangles), NewRules(Slots)
	admitted, withoutReserve := 0, 0
	for range 2000 {
		s, l := gpu("g", "A100"), &Load{}
		s.Reserve = 50
		for range 8 {
			a := ShareRequest{Tenant: "a", Share: fixed(share.PerMille(5+random.IntN(96)), share.PerMille(5+random.IntN(95)))}
			class, refusal := boxes.Admit(&s, l, a)
			bare := s
			bare.Reserve = 0
			if _, without := boxes.Admit(&bare, l, a); without == Admitted && refusal != Admitted {
				withoutReserve++
			}
			if refusal != Admitted {
				continue
			}
			asSlots := &Load{}
			for _, r := range l.Residents() {
				r.Model = Slots
				asSlots.Add(r)
			}
			if _, refusal := slots.Admit(&s, asSlots, a); refusal != Admitted {
				t.Fatalf("%v beside %v fits as rectangles; as slots: %q", a.Share, l.Residents(), refusal)
			}
			l.Add(Resident{Tenant: "a", Model: Rectangles, Class: class, Share: a.Share})
			admitted++
		}
	}
	if admitted < 1000 || withoutReserve < 20 {
		t.Errorf("%d shares admitted, %d for the reserve refused: the cases are one-sided", admitted, withoutReserve)
	}
}
