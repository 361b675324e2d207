package audit

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func (c *cluster) placement(pod *v1.Pod, s spec) kube.Placement {
	c.t.Helper()
	request, _, err := kube.RequestOf(pod)
	if err != nil {
		c.t.Fatal(err)
	}
	p := kube.Placement{Node: s.node, UID: pod.UID, Model: s.packing, Weights: request.Weights, AntiAffinity: request.AntiAffinity}
	if p.Model == "" {
		p.Model = kube.Slots
	}
	class := s.class
	if class == "" {
		class = share.MPS
	}
	placed := kube.PlacedContainer{Name: "main"}
	for _, id := range s.slices {
		placed.VGPUs = append(placed.VGPUs, kube.PlacedVGPU{
			Slice: id, Class: class, Priority: request.Priority, Share: request.Containers[0].Share,
		})
	}
	p.Containers = []kube.PlacedContainer{placed}
	return p
}

func (c *cluster) place(pod *v1.Pod, p kube.Placement) {
	c.t.Helper()
	text, err := kube.EncodePlacement(p)
	if err != nil {
		c.t.Fatal(err)
	}
	pod.Annotations[kube.AnnotationPlacement] = text
}

// edit changes the placement of a pod.
func (c *cluster) edit(pod *v1.Pod, change func(*kube.Placement)) {
	c.t.Helper()
	p, err := kube.DecodePlacement(pod.Annotations[kube.AnnotationPlacement])
	if err != nil {
		c.t.Fatal(err)
	}
	change(&p)
	c.place(pod, p)
}

func (c *cluster) check() Report { return Check(c.nodes, c.pods, Options{}) }

func number(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }

// several adds n pods of one spec to one slice.
func (c *cluster) several(n int, s spec) {
	for i := range n {
		s.name = fmt.Sprintf("%s-%d", s.slices[0], i)
		c.add(s)
	}
}
