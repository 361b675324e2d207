package packing

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Shape is the resource request of a pod, reduced to what pods are counted by: pods of equal requests have the same shape.
type Shape struct {
	VGPUs  int
	Milli  MilliGPU    // SM-time of each vGPU
	Memory share.Bytes // of each vGPU
	CPU    MilliCPU
	RAM    share.Bytes
	Models string // accepted models, comma-separated; empty accepts every model
	Kind   string // kind of slice; if containers name kinds of their own, that of each container, comma-separated
}

// ShapeOf returns the shape of a pod. A pod of several containers counts with all their vGPUs, each of the mean SM-time.
func ShapeOf(p *Pod) Shape {
	s := Shape{CPU: p.CPU, RAM: p.RAM, Models: strings.Join(p.Request.Models, ","), Kind: kindsOf(&p.Request)}
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

// kindsOf returns the kinds of slice that the request is for. It is that of the pod unless a container has one of its own.
func kindsOf(r *share.Request) string {
	if !slices.ContainsFunc(r.Containers, func(c share.Container) bool { return c.Slice != "" }) {
		return r.Slice
	}
	kinds := make([]string, len(r.Containers))
	for c := range kinds {
		kinds[c] = r.TermsOf(c).Slice
	}
	return strings.Join(kinds, ",")
}

// Mix counts the GPU pods of a cluster by shape (their resource request). The zero value has no pods.
type Mix struct {
	counts map[Shape]int
	pods   int
	gpu    MilliGPU
	cpu    MilliCPU
}

// Pods returns the number of pods counted.
func (m *Mix) Pods() int { return m.pods }

// Add counts n more pods of the shape, or -n fewer if n is negative.
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

// typicalShape is a popular resource request and the fraction of pods that have it.
type typicalShape struct {
	Shape
	models []string
	weight ppm
}

const (
	maxTypical = 64                  // a bit each in Demand's sets
	coverage   = int(one) * 95 / 100 // typical shapes stand for the most popular 95 % of pods, as in FGD
)

// typicalShapes returns the most popular shapes that cover 95 % of the pods, the most popular first, with weights that add up to one.
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

// byPopularity returns all shapes, the most popular first. Equally popular shapes are ordered by their fields.
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

func (s Shape) compare(o Shape) int {
	return cmp.Or(
		cmp.Compare(s.VGPUs, o.VGPUs), cmp.Compare(s.Milli, o.Milli), cmp.Compare(s.Memory, o.Memory),
		cmp.Compare(s.CPU, o.CPU), cmp.Compare(s.RAM, o.RAM), cmp.Compare(s.Models, o.Models), cmp.Compare(s.Kind, o.Kind))
}

func splitModels(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// accepts reports whether pods of the shape accept the kind of slice and its GPU model.
func (t *typicalShape) accepts(s *Slice) bool {
	return s.MatchesKind(t.Kind) && (len(t.models) == 0 || slices.Contains(t.models, s.Model))
}

// Capacity holds the GPUs and the CPU of a cluster, and how much of them is free.
type Capacity struct {
	GPU     MilliGPU
	FreeGPU MilliGPU
	CPU     MilliCPU
	FreeCPU MilliCPU
	Models  map[string]MilliGPU // by device model
}

// CapacityOf returns the capacity of one node. The second argument is the CPU of the node that pods may use when it is empty.
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

// ofModels returns the SM-time of all slices of the given GPU models.
func (c *Capacity) ofModels(models []string) MilliGPU {
	var sum MilliGPU
	for _, model := range models {
		sum += c.Models[model]
	}
	return sum
}
