package packing

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Shape is the properties of a pod by which pods are counted.
type Shape struct {
	VGPUs  int
	Milli  MilliGPU    // SM-time of each vGPU
	Memory share.Bytes // of each vGPU
	CPU    MilliCPU
	RAM    share.Bytes
	Models string // accepted models, comma-separated; empty accepts every model
	Kind   string // of slice
}

// ShapeOf returns the shape of a pod. Several containers count as their number of vGPUs, each of the mean size.
func ShapeOf(p *Pod) Shape {
	s := Shape{CPU: p.CPU, RAM: p.RAM, Models: strings.Join(p.Request.Models, ","), Kind: p.Request.Slice}
	var area share.Area
	for _, c := range p.Request.Containers {
		s.VGPUs += c.VGPUs
		area += share.Area(c.VGPUs) * c.Share.RequestArea()
		s.Memory = max(s.Memory, c.Share.Memory)
	}
	if s.VGPUs > 0 {
		s.Milli = milliGPUOf(area / share.Area(s.VGPUs))
	}
	return s
}

// Mix counts the GPU pods of a cluster by shape. The zero value is an empty cluster.
type Mix struct {
	counts map[Shape]int
	pods   int
	gpu    MilliGPU
	cpu    MilliCPU
}

// Pods returns the number of pods.
func (m *Mix) Pods() int { return m.pods }

// Add counts n more pods of the shape, or fewer if n is negative.
func (m *Mix) Add(s Shape, n int) {
	if m.counts == nil {
		m.counts = map[Shape]int{}
	}
	if m.counts[s] += n; m.counts[s] <= 0 {
		delete(m.counts, s)
	}
	m.pods += n
	m.gpu += MilliGPU(n) * MilliGPU(s.VGPUs) * s.Milli
	m.cpu += MilliCPU(n) * s.CPU
}

// typical is a popular shape and the part of the pods that have it.
type typicalShape struct {
	Shape
	models []string
	weight ppm
}

const (
	maxTypical = 64                  // a bit each in Demand's sets
	coverage   = int(one) * 95 / 100 // typical shapes stand for the most popular 95 % of pods, as in FGD
)

// typical returns the most popular shapes that cover 95 % of the pods, the most popular first, with weights that add up to one.
func (m *Mix) typicalShapes() []typicalShape {
	var out []typicalShape
	covered := 0
	for _, s := range m.byPopularity() {
		if len(out) == maxTypical || covered*int(one) >= coverage*m.pods {
			break
		}
		covered += m.counts[s]
		out = append(out, typicalShape{Shape: s, models: splitModels(s.Models), weight: ppm(m.counts[s])})
	}
	for i := range out {
		out[i].weight = out[i].weight * one / ppm(covered)
	}
	return out
}

// byPopularity returns all shapes, the most popular first; equally popular ones are in a fixed order.
func (m *Mix) byPopularity() []Shape {
	shapes := make([]Shape, 0, len(m.counts))
	for s := range m.counts {
		shapes = append(shapes, s)
	}
	slices.SortFunc(shapes, func(a, b Shape) int {
		return cmp.Or(cmp.Compare(m.counts[b], m.counts[a]), a.compare(b))
	})
	return shapes
}

// compare orders shapes by their fields.
func (s Shape) compare(o Shape) int {
	return cmp.Or(
		cmp.Compare(s.VGPUs, o.VGPUs), cmp.Compare(s.Milli, o.Milli), cmp.Compare(s.Memory, o.Memory),
		cmp.Compare(s.CPU, o.CPU), cmp.Compare(s.RAM, o.RAM), cmp.Compare(s.Models, o.Models), cmp.Compare(s.Kind, o.Kind))
}

// splitModels returns the models of a comma-separated list.
func splitModels(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// accepts reports whether the kind and the model of the slice suit pods of the shape.
func (t *typicalShape) accepts(s *Slice) bool {
	return s.matchesKind(t.Kind) && (len(t.models) == 0 || slices.Contains(t.models, s.Model))
}

// Capacity is the GPUs and the CPU of a cluster, and how much of them is free.
type Capacity struct {
	GPU     MilliGPU
	FreeGPU MilliGPU
	CPU     MilliCPU
	FreeCPU MilliCPU
	Models  map[string]MilliGPU // by device model
}

// CapacityOf returns the capacity of one node, of which pods may use the given CPU.
func CapacityOf(n *Node, cpu MilliCPU) Capacity {
	c := Capacity{CPU: cpu, FreeCPU: max(0, n.CPU), Models: map[string]MilliGPU{}}
	for i := range n.Slices {
		c.GPU += WholeGPU
		c.FreeGPU += n.freeSMTime(i)
		c.Models[n.Slices[i].Model] += WholeGPU
	}
	return c
}

// Add adds another capacity, or subtracts it if sign is -1. The receiver must have a map of models.
func (c *Capacity) Add(o Capacity, sign int) {
	c.GPU += MilliGPU(sign) * o.GPU
	c.FreeGPU += MilliGPU(sign) * o.FreeGPU
	c.CPU += MilliCPU(sign) * o.CPU
	c.FreeCPU += MilliCPU(sign) * o.FreeCPU
	for model, gpu := range o.Models {
		c.Models[model] += MilliGPU(sign) * gpu
	}
}

// of returns the SM-time of the slices of some models.
func (c *Capacity) ofModels(models []string) MilliGPU {
	var sum MilliGPU
	for _, model := range models {
		sum += c.Models[model]
	}
	return sum
}
