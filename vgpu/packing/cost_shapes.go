package packing

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// shapeSet is a set of typical shapes (popular resource requests), one bit for each index.
type shapeSet uint64

// all iterates over the indices of the shapes in the set.
func (s shapeSet) all(yield func(int) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(bits.TrailingZeros64(uint64(s))) {
			return
		}
	}
}

// has reports whether the shape with index i is in the set.
func (s shapeSet) has(i int) bool { return s>>i&1 == 1 }

// shapeIndex finds by binary search the typical shapes for which a free amount of SM-time, memory, CPU or RAM suffices.
type shapeIndex struct {
	Time, Memory, CPU, RAM []threshold
	Models                 map[string]shapeSet // by model, for whole GPUs
	Weight                 [maxTypical]ppm
	VGPUs                  [maxTypical]int32
	Total                  ppm // of weight
}

// threshold is an amount of a resource with the set of shapes that need at most that amount.
type threshold struct {
	Need   int64
	Shapes shapeSet
}

// satisfiedBy returns the shapes that need no more than the given amount. The thresholds are in ascending order.
func satisfiedBy(steps []threshold, has int64) shapeSet {
	low, high := 0, len(steps)
	for low < high {
		if mid := (low + high) / 2; steps[mid].Need <= has {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == 0 {
		return 0
	}
	return steps[low-1].Shapes
}

// newShapeIndex returns an index that finds typical shapes by the resources that they need and by the GPU models of the cluster.
func newShapeIndex(shapes []typicalShape, c Capacity) shapeIndex {
	s := shapeIndex{Models: make(map[string]shapeSet, len(c.Models))}
	for i := range shapes {
		m := &shapes[i]
		s.Time = append(s.Time, threshold{int64(m.Milli), 1 << i})
		s.Memory = append(s.Memory, threshold{int64(m.Memory), 1 << i})
		s.CPU = append(s.CPU, threshold{int64(m.CPU), 1 << i})
		s.RAM = append(s.RAM, threshold{int64(m.RAM), 1 << i})
		s.Weight[i], s.VGPUs[i] = m.weight, int32(m.VGPUs)
		s.Total += m.weight
	}
	s.Time, s.Memory, s.CPU, s.RAM = cumulate(s.Time), cumulate(s.Memory), cumulate(s.CPU), cumulate(s.RAM)
	for model := range c.Models {
		s.Models[model] = shapesAccepting(shapes, &Slice{Model: model})
	}
	return s
}

// cumulate sorts the thresholds, adds to each one the shapes that need less, and joins thresholds of equal amounts.
func cumulate(steps []threshold) []threshold {
	slices.SortFunc(steps, func(a, b threshold) int { return cmp.Compare(a.Need, b.Need) })
	var out []threshold
	var satisfied shapeSet
	for _, s := range steps {
		if satisfied |= s.Shapes; len(out) == 0 || out[len(out)-1].Need != s.Need {
			out = append(out, threshold{Need: s.Need})
		}
		out[len(out)-1].Shapes = satisfied
	}
	return out
}

// shapesAccepting returns the set of shapes that accept the kind of the slice and its GPU model.
func shapesAccepting(shapes []typicalShape, s *Slice) shapeSet {
	var set shapeSet
	for i := range shapes {
		if shapes[i].accepts(s) {
			set |= 1 << i
		}
	}
	return set
}

// shapesAccepting returns the typical shapes that accept the kind of the slice and its GPU model, from the index if it has the model.
func (d *Demand) shapesAccepting(s *Slice) shapeSet {
	if s.Profile == "" {
		if set, known := d.sets.Models[s.Model]; known {
			return set
		}
	}
	return shapesAccepting(d.shapes, s)
}

// shapesFitting returns the typical shapes of which one vGPU fits a slice with the given free SM-time and memory.
func (d *Demand) shapesFitting(time MilliGPU, memory share.Bytes, accepting shapeSet) shapeSet {
	return accepting & satisfiedBy(d.sets.Time, int64(time)) & satisfiedBy(d.sets.Memory, int64(memory))
}
