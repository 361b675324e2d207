package audit

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// planted is one fault in an otherwise clean cluster. The free slices of clean are b2 and m0-1.
type planted struct {
	name  string
	kind  Kind
	slice string // that the violation names
	pod   string
	plant func(c *cluster)
}

func testPlanted(t *testing.T, cases []planted) {
	for _, p := range cases {
		t.Run(p.name, func(t *testing.T) {
			c := clean(t)
			p.plant(c)
			r := c.check()
			if len(r.Violations) != 1 {
				t.Fatalf("want one violation %s, got %+v", p.kind, r.Violations)
			}
			got := r.Violations[0]
			if got.Kind != p.kind || got.Slice != p.slice || got.Pod != p.pod || got.Text == "" {
				t.Errorf("got %+v, want %s of slice %q and pod %q", got, p.kind, p.slice, p.pod)
			}
			t.Log(got.Text)
		})
	}
}

var onB2 = spec{name: "x", node: "b", slices: []string{"b2"}, sm: 50}

func with(s spec, change func(*spec)) spec {
	change(&s)
	return s
}

// spoil adds a pod on b2 and changes its placement.
func spoil(change func(*kube.Placement)) func(*cluster) {
	return func(c *cluster) { c.edit(c.add(onB2), change) }
}

func firstVGPU(p *kube.Placement) *kube.PlacedVGPU { return &p.Containers[0].VGPUs[0] }

func TestPlantedInPlacement(t *testing.T) {
	testPlanted(t, []planted{
		{"no placement", Unplaced, "", "team/x", func(c *cluster) {
			delete(c.add(onB2).Annotations, kube.AnnotationPlacement)
		}},
		{"placement before binding", Unbound, "", "team/x", func(c *cluster) { c.add(onB2).Spec.NodeName = "" }},
		{"unreadable placement", BadPlacement, "", "team/x", func(c *cluster) {
			c.add(onB2).Annotations[kube.AnnotationPlacement] = `{"v":1}`
		}},
		{"unreadable request", BadRequest, "", "team/x", func(c *cluster) {
			c.add(onB2).Annotations[kube.AnnotationIsolation] = "any"
		}},
		{"other node", Foreign, "", "team/x", spoil(func(p *kube.Placement) { p.Node = "a" })},
		{"other UID", Foreign, "", "team/x", spoil(func(p *kube.Placement) { p.UID = "someone" })},
		{"larger share", WrongShare, "b2", "team/x", spoil(func(p *kube.Placement) {
			firstVGPU(p).Share.SMRequest, firstVGPU(p).Share.SMLimit = 510, 510
		})},
		{"less memory", WrongShare, "b2", "team/x", spoil(func(p *kube.Placement) { firstVGPU(p).Share.Memory-- })},
		{"other priority", WrongShare, "b2", "team/x", spoil(func(p *kube.Placement) { firstVGPU(p).Priority = share.SLO })},
		{"other class", WrongClass, "b2", "team/x", spoil(func(p *kube.Placement) { firstVGPU(p).Class = share.Elastic })},
		{"too few vGPUs", WrongCount, "", "team/x", func(c *cluster) {
			c.add(with(onB2, func(s *spec) { s.vgpus = 2 }))
		}},
		{"too many vGPUs", WrongCount, "", "team/x", func(c *cluster) {
			c.add(with(onB2, func(s *spec) { s.slices = []string{"b2", "b1"} }))
		}},
	})
}

func TestPlantedInContainers(t *testing.T) {
	testPlanted(t, []planted{
		{"container not placed", MissingContainer, "", "team/x", func(c *cluster) {
			pod := c.add(onB2)
			second := *pod.Spec.Containers[0].DeepCopy()
			second.Name = "second"
			pod.Spec.Containers = append(pod.Spec.Containers, second)
		}},
		{"container that asks nothing", ExtraContainer, "", "team/x", func(c *cluster) {
			pod := c.add(onB2)
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "second"})
			c.edit(pod, func(p *kube.Placement) {
				p.Containers = append(p.Containers, kube.PlacedContainer{Name: "second", VGPUs: []kube.PlacedVGPU{*firstVGPU(p)}})
			})
		}},
		{"container that is not there", ExtraContainer, "", "team/x", spoil(func(p *kube.Placement) {
			p.Containers = append(p.Containers, kube.PlacedContainer{Name: "ghost", VGPUs: []kube.PlacedVGPU{*firstVGPU(p)}})
		})},
		{"a key twice on one device", NotApart, "m0-1", "team/y", func(c *cluster) {
			for i, name := range []string{"x", "y"} {
				c.add(spec{name: name, node: "m", slices: []string{[]string{"m0-0", "m0-1"}[i]}, sm: 50,
					annotations: map[string]string{kube.AnnotationSlice: share.AnyMIG, kube.AnnotationAntiAffinity: "k"}})
			}
		}},
		{"two vGPUs on one device", SameDevice, "m0-1", "team/x", func(c *cluster) {
			c.add(spec{name: "x", node: "m", slices: []string{"m0-0", "m0-1"}, sm: 50, vgpus: 2,
				annotations: map[string]string{kube.AnnotationSlice: share.AnyMIG}})
		}},
	})
}
