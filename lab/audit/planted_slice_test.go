package audit

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// fill puts n pods of one kind on b2.
func fill(n int, s spec) func(*cluster) {
	s.node, s.slices = "b", []string{"b2"}
	return func(c *cluster) { c.several(n, s) }
}

// two puts two different pods on b2.
func two(first, second spec) func(*cluster) {
	return func(c *cluster) {
		for name, s := range map[string]spec{"first": first, "second": second} {
			s.name, s.node, s.slices = name, "b", []string{"b2"}
			c.add(s)
		}
	}
}

// heavy fills a slice of 40 GiB with a model store with two shares, one of which declares weights of so many GiB, and the other the same weights
// or, if the sizes differ, others.
func heavy(first, second int, s spec) func(*cluster) {
	return func(c *cluster) {
		for i := range c.nodes {
			c.nodes[i].Annotations[kube.AnnotationInventory] = strings.ReplaceAll(c.nodes[i].Annotations[kube.AnnotationInventory],
				`"healthy":true`, `"healthy":true,"store":true`)
		}
		for i, gib := range []int{first, second} {
			s.name, s.node, s.slices = fmt.Sprint("heavy", i), "b", []string{"b2"}
			s.annotations = map[string]string{kube.AnnotationWeights: fmt.Sprintf("sha256:%064x=%dGi", gib, gib)}
			c.add(s)
		}
	}
}

func TestPlantedOnSlice(t *testing.T) {
	elastic := map[string]string{kube.AnnotationSMLimit: "40"}
	alone := map[string]string{kube.AnnotationIsolation: string(share.Exclusive)}
	greedy := map[string]string{kube.AnnotationQuotaLimit: "100"}
	testPlanted(t, []planted{
		{"memory", Memory, "b2", "", fill(3, spec{sm: 10, memory: 13654})},
		{"weights of two", Memory, "b2", "", heavy(13, 26, spec{sm: 10, memory: 2048})},
		{"weights without a store", WrongDevice, "b2", "team/x", func(c *cluster) {
			c.add(spec{name: "x", node: "b", slices: []string{"b2"}, sm: 10, annotations: note(kube.AnnotationWeights, fmt.Sprintf("sha256:%064x=1Gi", 1))})
		}},
		{"one's own weights", Memory, "b2", "", heavy(13, 13, spec{sm: 10, memory: 14336})},
		{"limits", Limits, "b2", "", fill(6, spec{sm: 30, quota: 10, annotations: greedy})},
		{"too many shares", TooMany, "b2", "", fill(17, spec{sm: 5})},
		{"tenants", MixedTenants, "b2", "", two(spec{sm: 20}, spec{sm: 20, tenant: "other"})},
		{"classes", MixedClasses, "b2", "", two(spec{sm: 20}, spec{sm: 20, class: share.Elastic, annotations: elastic})},
		{"packing models", MixedModels, "b2", "", two(spec{sm: 20}, spec{sm: 20, packing: kube.Rectangles})},
		{"exclusive", NotExclusive, "b2", "", fill(2, spec{sm: 20, class: share.Exclusive, annotations: alone})},
		{"slots in area but not in time", NoTable, "b2", "", fill(3, spec{sm: 60, quota: 40})},
		{"slots without reserve", NoTable, "b2", "", fill(2, spec{sm: 60, quota: 48})},
		{"slots above the whole", NoTable, "b2", "", fill(2, spec{sm: 51})},
		{"rectangles in time but not in place", NoPacking, "b2", "", fill(3, spec{sm: 50, quota: 60, packing: kube.Rectangles})},
		{"rectangles without reserve", NoTable, "b2", "", fill(2, spec{sm: 60, quota: 48, packing: kube.Rectangles})},
		{"a raised one above the whole", NoTable, "b2", "", func(c *cluster) {
			fill(2, spec{sm: 60})(c)
			lower(&c.pods[len(c.pods)-1])
			c.pods[len(c.pods)-1].Annotations[kube.AnnotationResidency] = `{"v":1,"residency":{"seq":3,"level":"Hot"}}`
		}},
		{"memory of Shared ones", Memory, "b2", "", func(c *cluster) {
			fill(3, spec{sm: 10, memory: 13654})(c)
			lower(&c.pods[len(c.pods)-1])
		}},
		{"rectangles above the whole", NoTable, "b2", "", fill(2, spec{sm: 51, packing: kube.Rectangles})},
	})
}

func TestAllowedOnSlice(t *testing.T) {
	for name, plant := range map[string]func(*cluster){
		"memory to the last MiB":    fill(2, spec{sm: 10, memory: 20480}),
		"weights once":              heavy(13, 13, spec{sm: 10, memory: 13824}),
		"limits to the bound":       fill(5, spec{sm: 30, quota: 10, annotations: map[string]string{kube.AnnotationQuotaLimit: "100"}}),
		"as many shares as may be":  fill(16, spec{sm: 5}),
		"slots to the reserve":      fill(2, spec{sm: 60, quota: 47}),
		"rectangles to the reserve": fill(2, spec{sm: 60, quota: 47, packing: kube.Rectangles}),
		"slots beside Shared":       func(c *cluster) { fill(2, spec{sm: 60})(c); lower(&c.pods[len(c.pods)-1]) },
		"rectangles beside Shared":  func(c *cluster) { fill(2, spec{sm: 60, packing: kube.Rectangles})(c); lower(&c.pods[len(c.pods)-2]) },
		"other keys": func(c *cluster) {
			for i, key := range []string{"", "", "k", "l"} {
				fill(1, spec{sm: 10, name: fmt.Sprint("key", i), annotations: map[string]string{kube.AnnotationAntiAffinity: key}})(c)
			}
		},
		"only Shared": func(c *cluster) { fill(1, spec{sm: 60})(c); lower(&c.pods[len(c.pods)-1]) },
	} {
		t.Run(name, func(t *testing.T) {
			c := clean(t)
			plant(c)
			if r := c.check(); len(r.Violations) != 0 {
				t.Errorf("%+v", r.Violations)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	c := clean(t)
	two(spec{sm: 20}, spec{sm: 20, tenant: "other"})(c)
	if r := Check(c.nodes, c.pods, Options{MixTenants: true}); len(r.Violations) != 0 {
		t.Errorf("mixed tenants are allowed: %+v", r.Violations)
	}
	c = clean(t)
	fill(5, spec{sm: 30, quota: 10, annotations: map[string]string{kube.AnnotationQuotaLimit: "100"}})(c)
	if r := Check(c.nodes, c.pods, Options{GammaPercent: 149}); len(r.Violations) != 1 || r.Violations[0].Kind != Limits {
		t.Errorf("150 percent of limits under a bound of 149: %+v", r.Violations)
	}
}
