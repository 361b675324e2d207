package planner

import (
	"testing"

	"sigs.k8s.io/yaml"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/planning"
)

// TestStatusIsMemory: for each mode, the groups that are read from a status are those that were written, so that the next leader can keep them.
func TestStatusIsMemory(t *testing.T) {
	var c planning.Catalogue
	book := planning.NewPriceBook()
	if err := yaml.UnmarshalStrict([]byte(profiles+otherModes), &c); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(prices+otherPrices), &book); err != nil {
		t.Fatal(err)
	}
	for mode, own := range modes {
		t.Run(string(mode), func(t *testing.T) {
			in := planning.Input{
				Models: c.Models, Prices: book.Prices, Platform: book.Platform, Modes: []planning.Mode{own},
				Applications: []planning.Application{{Name: "a", Model: "vision", SLO: 0.5, Rate: 3}, {Name: "b", Model: "vision", SLO: 2, Rate: 0.25}},
			}
			plan, err := planning.Best(in)
			if err != nil || len(plan.Infeasible) > 0 {
				t.Fatal(plan, err)
			}
			status := statusGroups(plan.Groups, &c.Models[0])
			kept, ok, err := planning.Keep(in, presentGroups(status, "vision"))
			if err != nil || !ok {
				t.Fatalf("not kept: %v; status %+v", err, status)
			}
			if off := float64(kept.Cost/plan.Cost) - 1; off < -1e-9 || off > 0.001 { // memory is rounded up to MiB
				t.Errorf("costs %v, planned %v", kept.Cost, plan.Cost)
			}
			again := statusGroups(kept.Groups, &c.Models[0])
			for i := range status {
				if again[i].On != status[i].On || again[i].Batch != status[i].Batch {
					t.Errorf("%s in %d, planned %s in %d", again[i].On, again[i].Batch, status[i].On, status[i].Batch)
				}
			}
		})
	}
}

// TestTexts: numbers of a status are rounded to be read, and a prediction is not rounded to look better.
func TestTexts(t *testing.T) {
	for got, want := range map[string]string{
		digits(0, 3): "0", digits(12.345, 3): "12.3", digits(123456, 3): "123000", digits(0.000123456, 3): "0.000123",
		part(0): "0%", part(0.0101): "1.1%", part(0.01): "1%", part(0.99999): "100%", part(2): "100%", part(0.00001234): "0.0013%",
		saving(0, 5): "", saving(10, 5): "50%", saving(10, 12): "-20%",
		perHour(500_000): "1.8", string(durationOf(0.123456789)): "123ms", string(durationOf(0.0012345)): "1.23ms", string(durationOf(61.5)): "1m1.5s",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if b := basisOf(&api.InferencePlanStatus{Unplanned: []api.Unplanned{{Name: "a", SLO: "69ms"}}}); b.Applications["a"].SLO != 0.069 {
		t.Errorf("%+v", b)
	}
}
