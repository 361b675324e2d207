package packing

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Shape is what matters of a pod when pods are counted: equal shapes are one typical pod.
type Shape struct {
	VGPUs  int
	Milli  MilliGPU    // SM-time of each vGPU
	Memory share.Bytes // of each vGPU
	CPU    MilliCPU
	RAM    share.Bytes
	Models string // accepted models, comma-separated; empty accepts every model
	Kind   string // of slice
}

// ShapeOf describes a pod. Several containers count as so many vGPUs of their mean size.
func ShapeOf(p *Pod) Shape {
	s := Shape{CPU: p.CPU, RAM: p.RAM, Models: strings.Join(p.Request.Models, ","), Kind: p.Request.Slice}
	var area share.Area
	for _, c := range p.Request.Containers {
		s.VGPUs += c.VGPUs
		area += share.Area(c.VGPUs) * c.Share.RequestArea()
		s.Memory = max(s.Memory, c.Share.Memory)
	}
	if s.VGPUs > 0 {
		s.Milli = milli(area / share.Area(s.VGPUs))
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

// Pods is the number of pods counted.
func (m *Mix) Pods() int { return m.pods }

// Add counts n more pods of the shape, or fewer when n is negative.
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

// typical is a popular shape and how popular it is.
type typical struct {
	Shape
	models []string
	weight ppm
}

const (
	maxTypical = 64                  // a bit each in Demand's sets
	coverage   = int(one) * 95 / 100 // typical shapes stand for the most popular 95 % of pods, as in FGD
)

// typical lists the most popular shapes, the most popular first.
func (m *Mix) typical() []typical {
	var out []typical
	covered := 0
	for _, s := range m.byPopularity() {
		if len(out) == maxTypical || covered*int(one) >= coverage*m.pods {
			break
		}
		covered += m.counts[s]
		out = append(out, typical{Shape: s, models: splitModels(s.Models), weight: ppm(m.counts[s])})
	}
	for i := range out {
		out[i].weight = out[i].weight * one / ppm(covered)
	}
	return out
}

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

// accepts says whether pods of the shape may run on the slice at all.
func (t *typical) accepts(s *Slice) bool {
	return s.kindMatches(t.Kind) && (len(t.models) == 0 || slices.Contains(t.models, s.Model))
}
