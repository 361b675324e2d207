package geometry_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// parsePlacement parses a placement such as "1g.10gb@3".
func parsePlacement(t *testing.T, m *mig.Model, text string) (i mig.Instance) {
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

// parseInstance parses an instance such as "1g.10gb@3 idle": a placement, and idle, used, incomplete (no compute instance) or fixed.
func parseInstance(t *testing.T, m *mig.Model, text string) geometry.Instance {
	t.Helper()
	at, state, _ := strings.Cut(text, " ")
	return geometry.Instance{Instance: parsePlacement(t, m, at), Ready: state != "incomplete", Used: state == "used", Fixed: state == "fixed"}
}

func TestPlan(t *testing.T) {
	m, err := mig.ModelNamed("A100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		now  []string
		at   string
		want []string // steps, or "no"
	}{
		"empty GPU":            {nil, "1g.10gb@6", []string{"create GPU instance 1g.10gb at 6", "create compute instance 1g.10gb at 6"}},
		"idle is reused":       {[]string{"1g.10gb@6 idle"}, "1g.10gb@6", nil},
		"incomplete":           {[]string{"1g.10gb@6 incomplete"}, "1g.10gb@6", []string{"create compute instance 1g.10gb at 6"}},
		"idle elsewhere stays": {[]string{"1g.10gb@0 idle"}, "1g.10gb@6", []string{"create GPU instance 1g.10gb at 6", "create compute instance 1g.10gb at 6"}},
		"idle in the way": {[]string{"3g.40gb@4 idle", "2g.20gb@0 idle"}, "1g.10gb@6", []string{
			"destroy compute instance 3g.40gb at 4", "destroy GPU instance 3g.40gb at 4", "create GPU instance 1g.10gb at 6", "create compute instance 1g.10gb at 6"}},
		"incomplete in the way": {[]string{"1g.10gb@2 incomplete"}, "4g.40gb@0", []string{
			"destroy GPU instance 1g.10gb at 2", "create GPU instance 4g.40gb at 0", "create compute instance 4g.40gb at 0"}},
		"around what is used":  {[]string{"1g.10gb@6 used"}, "3g.40gb@0", []string{"create GPU instance 3g.40gb at 0", "create compute instance 3g.40gb at 0"}},
		"used is not removed":  {[]string{"1g.10gb@6 used"}, "7g.80gb@0", []string{"no"}},
		"used is not reused":   {[]string{"1g.10gb@6 used"}, "1g.10gb@6", []string{"no"}},
		"fixed is not removed": {[]string{"1g.10gb@6 fixed"}, "7g.80gb@0", []string{"no"}},
		"fixed is reused":      {[]string{"1g.10gb@2 fixed"}, "1g.10gb@2", nil},
		"media engines in use": {[]string{"1g.10gb+me@0 used"}, "1g.10gb+me@6", []string{"no"}},
		"media engines idle":   {[]string{"1g.10gb+me@0 idle"}, "1g.10gb+me@6", []string{"destroy compute instance 1g.10gb+me at 0", "destroy GPU instance 1g.10gb+me at 0", "create GPU instance 1g.10gb+me at 6", "create compute instance 1g.10gb+me at 6"}},
	} {
		t.Run(name, func(t *testing.T) {
			var now []geometry.Instance
			for _, text := range c.now {
				now = append(now, parseInstance(t, m, text))
			}
			steps, ok := geometry.Plan(now, parsePlacement(t, m, c.at))
			got := []string{}
			for _, s := range steps {
				got = append(got, s.String())
			}
			if !ok {
				got = []string{"no"}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
