package packing

import (
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// admission is a call of Rules.Admit with its result. Fields left nil mean an empty healthy GPU, terms that accept anything,
// and the default rules.
type admission struct {
	slice func(*Slice)
	load  *Load
	terms share.Terms
	share share.Share
	rules func(*Rules)

	wantClass share.Isolation
	want      Refusal
}

func (a admission) check(t *testing.T) {
	t.Helper()
	s, rules, load := gpu("g", "A100"), NewRules(Slots), a.load
	if a.slice != nil {
		a.slice(&s)
	}
	if a.rules != nil {
		a.rules(&rules)
	}
	if load == nil {
		load = &Load{}
	}
	before := len(load.Residents())
	class, refusal := rules.Admit(&s, load, ShareRequest{Tenant: "a", Terms: a.terms, Share: a.share})
	if refusal != a.want {
		t.Fatalf("got %q, want %q", refusal, a.want)
	}
	if refusal == Admitted && class != a.wantClass {
		t.Errorf("class %q, want %q", class, a.wantClass)
	}
	if len(load.Residents()) != before {
		t.Error("asking changed the load")
	}
}

func checkAll(t *testing.T, cases map[string]admission) {
	for name, c := range cases {
		t.Run(name, c.check)
	}
}

func TestAdmitKindOfSlice(t *testing.T) {
	small := func(s *Slice) { s.Profile = "1g.10gb" }
	one := fixed(10, 100)
	checkAll(t, map[string]admission{
		"no kind means a whole GPU":   {share: one, wantClass: share.MPS},
		"a whole GPU":                 {terms: share.Terms{Slice: share.WholeGPU}, share: one, wantClass: share.MPS},
		"a GPU is no MIG slice":       {terms: share.Terms{Slice: share.AnyMIG}, share: one, want: WrongKind},
		"a GPU is no profile":         {terms: share.Terms{Slice: "1g.10gb"}, share: one, want: WrongKind},
		"a MIG slice is no GPU":       {slice: small, share: one, want: WrongKind},
		"any MIG slice":               {slice: small, terms: share.Terms{Slice: share.AnyMIG}, share: one, wantClass: share.MPS},
		"the profile asked for":       {slice: small, terms: share.Terms{Slice: "1g.10gb"}, share: one, wantClass: share.MPS},
		"another profile":             {slice: small, terms: share.Terms{Slice: "2g.20gb"}, share: one, want: WrongKind},
		"one of the accepted models":  {terms: share.Terms{Models: []string{"A100", "H200"}}, share: one, wantClass: share.MPS},
		"none of the accepted models": {terms: share.Terms{Models: []string{"H100", "H200"}}, share: one, want: WrongModel},
		"unhealthy":                   {slice: func(s *Slice) { s.Healthy = false }, share: one, want: Unhealthy},
		"the kind is asked before the model and the health": {
			slice: func(s *Slice) { s.Healthy = false }, terms: share.Terms{Slice: share.AnyMIG, Models: []string{"H200"}}, share: one, want: WrongKind},
		"the model is asked before the health": {
			slice: func(s *Slice) { s.Healthy = false }, terms: share.Terms{Models: []string{"H200"}}, share: one, want: WrongModel},
	})
}

func TestAdmitClass(t *testing.T) {
	only := func(classes ...share.Isolation) func(*Slice) { return func(s *Slice) { s.Classes = classes } }
	whole := fixed(100, 100)
	checkAll(t, map[string]admission{
		"a part runs under mps":              {share: fixed(50, 40), wantClass: share.MPS},
		"a whole GPU is exclusive":           {share: whole, wantClass: share.Exclusive},
		"all SMs for part of the time: mps":  {share: fixed(100, 50), wantClass: share.MPS},
		"a higher SM limit is elastic":       {share: elastic(30, 60), wantClass: share.Elastic},
		"a whole GPU, only mps there":        {share: whole, slice: only(share.MPS), wantClass: share.MPS},
		"a part, only exclusive there":       {share: fixed(50, 40), slice: only(share.Exclusive), want: NotEnforceable},
		"elastic, only mps there":            {share: elastic(30, 60), slice: only(share.MPS, share.Exclusive), want: NotEnforceable},
		"a part alone on its GPU":            {share: fixed(50, 40), terms: share.Terms{Isolation: share.Exclusive}, wantClass: share.Exclusive},
		"a part that wants an elastic slice": {share: fixed(50, 100), terms: share.Terms{Isolation: share.Elastic}, wantClass: share.Elastic},
		"the class asked for is not there":   {share: whole, slice: only(share.Exclusive), terms: share.Terms{Isolation: share.MPS}, want: NotEnforceable},
		"nothing enforceable, strict": {
			share: fixed(50, 40), slice: only(), terms: share.Terms{Enforcement: share.Strict}, want: NotEnforceable},
		"nothing enforceable, best effort": {
			share: fixed(50, 40), slice: only(), terms: share.Terms{Enforcement: share.BestEffortEnforcement}, wantClass: share.MPS},
		"best effort takes the preferred class": {
			share: whole, slice: only(share.Elastic), terms: share.Terms{Enforcement: share.BestEffortEnforcement}, wantClass: share.Exclusive},
		"best effort uses what is enforceable": {
			share: whole, slice: only(share.MPS), terms: share.Terms{Enforcement: share.BestEffortEnforcement}, wantClass: share.MPS},
	})
}

func TestAdmitSize(t *testing.T) {
	wideLimit := fixed(50, 50)
	wideLimit.QuotaLimit = 1000
	checkAll(t, map[string]admission{
		"all of the memory":                 {share: withMemory(fixed(10, 10), 80), wantClass: share.MPS},
		"more memory than the slice has":    {share: withMemory(fixed(10, 10), 81), want: TooLarge},
		"a limit above what γ allows alone": {share: elastic(10, 100), slice: func(s *Slice) { s.Gamma = 999 }, want: TooLarge},
		"a limit just within γ":             {share: elastic(10, 100), slice: func(s *Slice) { s.Gamma = 1000 }, wantClass: share.Elastic},
		"γ bounds time as well as SMs":      {share: wideLimit, slice: func(s *Slice) { s.Gamma = 499 }, want: TooLarge},
		"γ below one":                       {share: wideLimit, slice: func(s *Slice) { s.Gamma = 500 }, wantClass: share.MPS},
	})
}

// TestClone: what is added to one copy of a load is seen neither in another copy nor in the original.
func TestClone(t *testing.T) {
	var l Load
	for n := range 10 {
		first, second := l.clone(), l.clone()
		first.Add(as(runs(fixed(1, 1)), func(r *Resident) { r.Tenant = "first" }))
		second.Add(as(runs(fixed(2, 2)), func(r *Resident) { r.Tenant = "second" }))
		if a, b := first.Residents()[n], second.Residents()[n]; a.Tenant != "first" || b.Tenant != "second" || first.items[n] == second.items[n] {
			t.Errorf("after %d shares the copies have %v and %v", n, a, b)
		}
		if len(l.Residents()) != n || len(l.items) != n {
			t.Errorf("the original has %d of %d shares", len(l.Residents()), n)
		}
		l.Add(runs(fixed(1, 1)))
	}
}
