package audit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func annotated(key, value string) spec {
	return with(onB2, func(s *spec) { s.annotations = map[string]string{key: value} })
}

func TestPlantedInChoice(t *testing.T) {
	testPlanted(t, []planted{
		{"model not accepted", WrongDevice, "b2", "team/x", func(c *cluster) { c.add(annotated(kube.AnnotationModel, "H200")) }},
		{"whole GPU for a MIG pod", WrongDevice, "b2", "team/x", func(c *cluster) { c.add(annotated(kube.AnnotationSlice, "mig")) }},
		{"MIG instance for a GPU pod", WrongDevice, "m0-1", "team/x", func(c *cluster) {
			c.add(spec{name: "x", node: "m", slices: []string{"m0-1"}, sm: 50})
		}},
		{"other profile", WrongDevice, "m0-1", "team/x", func(c *cluster) {
			c.add(spec{name: "x", node: "m", slices: []string{"m0-1"}, sm: 50,
				annotations: map[string]string{kube.AnnotationSlice: "2g.10gb"}})
		}},
		{"other profile for a container", WrongDevice, "m0-1", "team/x", func(c *cluster) {
			c.add(spec{name: "x", node: "m", slices: []string{"m0-1"}, sm: 50,
				annotations: map[string]string{kube.AnnotationSlice: "mig", kube.AnnotationContainerSlice + "main": "2g.10gb"}})
		}},
		{"class not enforced", NotEnforceable, "p0", "team/x", func(c *cluster) {
			c.node("p", pinned("p0"))
			c.add(spec{name: "x", node: "p", slices: []string{"p0"}, sm: 50})
		}},
		{"node selector", Affinity, "", "team/x", func(c *cluster) {
			c.add(onB2).Spec.NodeSelector = map[string]string{"disk": "fast"}
		}},
		{"taint", Tainted, "", "team/x", func(c *cluster) {
			c.node("p", gpu("p0"))
			c.nodes[3].Spec.Taints = []v1.Taint{{Key: "kept", Effect: v1.TaintEffectNoSchedule}}
			c.add(spec{name: "x", node: "p", slices: []string{"p0"}, sm: 50})
		}},
	})
}

func pinned(id string) kube.Slice {
	s := gpu(id)
	s.Classes = []share.Isolation{share.Exclusive}
	return s
}

func TestPlantedInNode(t *testing.T) {
	testPlanted(t, []planted{
		{"too much CPU", Resources, "", "", func(c *cluster) { c.add(with(onB2, func(s *spec) { s.cpu = 32 })) }},
		{"too little of ours", Resources, "", "", func(c *cluster) { c.nodes[0].Status.Allocatable[kube.ResourceSM] = resource.MustParse("99") }},
		{"too many pods", TooManyPods, "", "", func(c *cluster) { c.nodes[0].Status.Allocatable[v1.ResourcePods] = resource.MustParse("0") }},
		{"unreadable inventory", BadInventory, "", "", func(c *cluster) {
			c.nodes = append(c.nodes, v1.Node{})
			c.nodes[3].Annotations = map[string]string{kube.AnnotationInventory: "{"}
		}},
	})
}

func TestAllowedInChoice(t *testing.T) {
	c := clean(t)
	c.node("p", pinned("p0"), pinned("p1"))
	c.add(spec{name: "x", node: "p", slices: []string{"p0"}, sm: 50,
		annotations: map[string]string{kube.AnnotationEnforcement: string(share.BestEffortEnforcement)}})
	c.nodes[3].Spec.Unschedulable = true
	c.nodes[3].Spec.Taints = []v1.Taint{{Key: "node.kubernetes.io/unschedulable", Effect: v1.TaintEffectNoSchedule}}
	if r := c.check(); len(r.Violations) != 0 {
		t.Errorf("got %+v", r.Violations)
	}
}
