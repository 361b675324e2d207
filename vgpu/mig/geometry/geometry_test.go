package geometry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// place reads "1g.10gb@3".
func place(t *testing.T, m *mig.Model, text string) (i mig.Instance) {
	t.Helper()
	var name string
	if _, err := fmt.Sscanf(strings.Replace(text, "@", " ", 1), "%s %d", &name, &i.Start); err != nil {
		t.Fatal(text, err)
	}
	p, ok := m.Profile(name)
	if !ok {
		t.Fatal(text)
	}
	i.Profile = p
	return i
}

// parse reads "1g.10gb@3 idle": a place, and idle, used, bare (no compute instance) or fixed.
func parse(t *testing.T, m *mig.Model, text string) geometry.Instance {
	t.Helper()
	at, state, _ := strings.Cut(text, " ")
	return geometry.Instance{Instance: place(t, m, at), Ready: state != "bare", Used: state == "used", Fixed: state == "fixed"}
}

func TestPlan(t *testing.T) {
	m, err := mig.ModelNamed("A100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		now  []string
		wish string
		want []string // steps; "no" where there is no place
	}{
		"empty GPU":            {nil, "1g.10gb@6", []string{"create GPU instance 1g.10gb at 6", "create compute instance 1g.10gb at 6"}},
		"idle one again":       {[]string{"1g.10gb@6 idle"}, "1g.10gb@6", nil},
		"half made":            {[]string{"1g.10gb@6 bare"}, "1g.10gb@6", []string{"create compute instance 1g.10gb at 6"}},
		"idle elsewhere stays": {[]string{"1g.10gb@0 idle"}, "1g.10gb@6", []string{"create GPU instance 1g.10gb at 6", "create compute instance 1g.10gb at 6"}},
		"idle in the way": {[]string{"3g.40gb@4 idle", "2g.20gb@0 idle"}, "1g.10gb@6", []string{
			"destroy compute instance 3g.40gb at 4", "destroy GPU instance 3g.40gb at 4", "create GPU instance 1g.10gb at 6", "create compute instance 1g.10gb at 6"}},
		"half made in the way": {[]string{"1g.10gb@2 bare"}, "4g.40gb@0", []string{
			"destroy GPU instance 1g.10gb at 2", "create GPU instance 4g.40gb at 0", "create compute instance 4g.40gb at 0"}},
		"around what is used":   {[]string{"1g.10gb@6 used"}, "3g.40gb@0", []string{"create GPU instance 3g.40gb at 0", "create compute instance 3g.40gb at 0"}},
		"what is used stays":    {[]string{"1g.10gb@6 used"}, "7g.80gb@0", []string{"no"}},
		"nor is it given":       {[]string{"1g.10gb@6 used"}, "1g.10gb@6", []string{"no"}},
		"a fixed one stays":     {[]string{"1g.10gb@6 fixed"}, "7g.80gb@0", []string{"no"}},
		"a fixed one is given":  {[]string{"1g.10gb@2 fixed"}, "1g.10gb@2", nil},
		"media engines in use":  {[]string{"1g.10gb+me@0 used"}, "1g.10gb+me@6", []string{"no"}},
		"media engines are one": {[]string{"1g.10gb+me@0 idle"}, "1g.10gb+me@6", []string{"destroy compute instance 1g.10gb+me at 0", "destroy GPU instance 1g.10gb+me at 0", "create GPU instance 1g.10gb+me at 6", "create compute instance 1g.10gb+me at 6"}},
	} {
		var now []geometry.Instance
		for _, text := range c.now {
			now = append(now, parse(t, m, text))
		}
		steps, ok := geometry.Plan(now, place(t, m, c.wish))
		got := []string{}
		for _, s := range steps {
			got = append(got, s.String())
		}
		if !ok {
			got = []string{"no"}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
