package migchurn

import (
	"math"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

func model(t testing.TB, name string) *mig.Model {
	t.Helper()
	m, err := mig.ModelNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func policy(t testing.TB, name string, m *mig.Model) Policy {
	t.Helper()
	p, err := PolicyNamed(name, m)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func mix(t testing.TB, name string) Mix {
	t.Helper()
	x, err := MixNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// A guard around a policy keeps a book of its own: every instance lies where the driver allows it, on slices that none of
// the instances still running has, and a request is refused only where it has no place at all.
func TestNothingOverlapsOrMoves(t *testing.T) {
	for _, name := range Policies {
		for _, m := range mig.Models() {
			l := Load{Model: m, GPUs: 5, Mix: Mixes[0], Offered: 1.2, Requests: 3000, Seed: 7}
			if _, err := Run(l, guard(t, name, policy(t, name, m))); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func guard(t *testing.T, name string, choose Policy) Policy {
	last := map[int]mig.Layout{}
	return func(gpus []mig.Layout, p *mig.Profile) (int, mig.Instance, bool) {
		for g, l := range gpus {
			if l.Used&^last[g].Used != 0 {
				t.Fatalf("%s: GPU %d gained slices %08b that nobody placed", name, g, l.Used&^last[g].Used)
			}
			last[g] = l
		}
		gpu, made, ok := choose(gpus, p)
		if ok && !gpus[gpu].Fits(made) {
			t.Fatalf("%s: %s at %d does not fit on %+v", name, made.Profile.Name, made.Start, gpus[gpu])
		}
		if _, _, fits := FirstFit(gpus, p); fits && !ok && name != "static" {
			t.Fatalf("%s refuses %s, which fits", name, p.Name)
		}
		if ok {
			last[gpu] = gpus[gpu].With(made)
		}
		return gpu, made, ok
	}
}

// What is offered is what was asked for, and what is busy is what was accepted (Little's law).
func TestAccounts(t *testing.T) {
	m := model(t, "H100-80GB")
	for _, load := range []float64{0.3, 1.1} {
		l := Load{Model: m, GPUs: 60, Mix: Mixes[0], Offered: load, Requests: 100000, Seed: 1}
		r, err := Run(l, policy(t, "gradient", m))
		if err != nil {
			t.Fatal(err)
		}
		if want := load * r.AcceptedPercent() / 100; math.Abs(r.MeanBusy-want) > 0.02*want {
			t.Errorf("load %.1f: %.3f of the slices are busy, want %.3f", load, r.MeanBusy, want)
		}
		if r.Requests != 75000 || r.Accepted > r.Requests || load < 1 && r.Accepted != r.Requests {
			t.Errorf("load %.1f: accepted %d of %d requests", load, r.Accepted, r.Requests)
		}
	}
}

func TestSeedDecides(t *testing.T) {
	m := model(t, "A30-24GB")
	run := func(seed uint64) Result {
		r, err := Run(Load{Model: m, GPUs: 8, Mix: Mixes[1], Offered: 1, Requests: 2000, Seed: seed}, policy(t, "gradient", m))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if a, b := run(1), run(1); a != b {
		t.Errorf("one seed gave %+v and %+v", a, b)
	}
	if a, b := run(1), run(2); a == b {
		t.Errorf("two seeds gave %+v", a)
	}
}

func TestStaticCut(t *testing.T) {
	for name, want := range map[string][]string{"A100-80GB": {"1g.10gb", "2g.20gb", "4g.40gb"}, "A30-24GB": {"2g.12gb", "2g.12gb"}} {
		t.Run(name, func(t *testing.T) {
			pieces := halvedGPU(model(t, name))
			if len(pieces) != len(want) {
				t.Fatalf("%d pieces, want %v", len(pieces), want)
			}
			for i, p := range pieces {
				if p.Profile.Name != want[i] {
					t.Errorf("piece %d is %s, want %s", i, p.Profile.Name, want[i])
				}
			}
		})
	}
}

func TestRefusedInput(t *testing.T) {
	m := model(t, "A100-80GB")
	for name, l := range map[string]Load{
		"no GPU":     {Model: m, Mix: Mixes[0], Offered: 1, Requests: 10},
		"no load":    {Model: m, GPUs: 1, Mix: Mixes[0], Requests: 10},
		"NaN":        {Model: m, GPUs: 1, Mix: Mixes[0], Offered: math.NaN(), Requests: 10},
		"no request": {Model: m, GPUs: 1, Mix: Mixes[0], Offered: 1},
		"no mix":     {Model: m, GPUs: 1, Offered: 1, Requests: 10},
	} {
		t.Run(name, func(t *testing.T) {
			if r, err := Run(l, FirstFit); err == nil {
				t.Errorf("%+v", r)
			}
		})
	}
	if _, err := PolicyNamed("", m); err == nil {
		t.Error("a policy without a name")
	}
	if _, err := MixNamed("huge"); err == nil {
		t.Error("a mix that nobody defined")
	}
}
