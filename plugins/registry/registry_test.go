package registry

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// TestLoad: the arguments reach the rules and the preference of each plugin.
func TestLoad(t *testing.T) {
	demand := &packing.Demand{}
	balance := func(terms packing.Terms) packing.Ranker { return packing.Balance{Terms: terms, Demand: demand} }
	without := packing.AllTerms
	without.Scarcity = false
	for name, c := range map[string]struct {
		plugin, args string
		model        packing.Model
		ranker       packing.Ranker
		affinity     bool
	}{
		"slots":                {SlotPacking, "", packing.Slots, balance(packing.AllTerms), false},
		"slots, a term off":    {SlotPacking, "balance: {scarcity: false}", packing.Slots, balance(without), false},
		"rectangles":           {RectanglePacking, "", packing.Rectangles, packing.BestArea{}, false},
		"complementary":        {ComplementaryPacking, "", packing.Slots, packing.DiluWeights, true},
		"complementary, alpha": {ComplementaryPacking, "alphaPercent: 75", packing.Slots, packing.Complementary{Alpha: 750, Beta: 250}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var args runtime.Object
			if c.args != "" {
				args = &runtime.Unknown{Raw: []byte(c.args)}
			}
			p, err := Load(c.plugin, args)
			if err != nil {
				t.Fatal(err)
			}
			if p.Name != c.plugin || p.Model != c.model || p.Affinity != c.affinity {
				t.Errorf("got %+v", p)
			}
			if diff := cmp.Diff(c.ranker, p.Ranker(demand), cmp.AllowUnexported(packing.Demand{})); diff != "" {
				t.Errorf("ranker (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLoadRefuses(t *testing.T) {
	for name, c := range map[string]struct{ plugin, args, want string }{
		"another plugin":            {"NodeResourcesFit", "", "NodeResourcesFit is none of the plugins [ComplementaryPacking RectanglePacking SlotPacking]"},
		"unknown field":             {RectanglePacking, "gama: 120", "RectanglePacking: decode plugin args"},
		"another plugin's argument": {ComplementaryPacking, "balance: {scarcity: false}", `unknown field "balance"`},
		"a setting of nodes":        {RectanglePacking, "gammaPercent: 120", "RectanglePacking: gammaPercent: is now set on the nodes"},
		"out of range":              {SlotPacking, "candidateNodes: -1", "candidateNodes: -1"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Load(c.plugin, &runtime.Unknown{Raw: []byte(c.args)}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v does not contain %q", err, c.want)
			}
		})
	}
}
