package packing

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// shapeSet is a set of typical shapes, a bit for the index of each.
type shapeSet uint64

// all goes through the indices in the set.
func (s shapeSet) all(yield func(int) bool) {
	for ; s != 0; s &= s - 1 {
		if !yield(bits.TrailingZeros64(uint64(s))) {
			return
		}
	}
}

func (s shapeSet) has(i int) bool { return s>>i&1 == 1 }

// sets tells which typical shapes are content with something, without asking each.
type sets struct {
	Time, Memory, CPU, RAM []step
	Models                 map[string]shapeSet // by model, for whole GPUs
	Weight                 [maxTypical]ppm
	VGPUs                  [maxTypical]int32
	Total                  ppm // of weight
}

// step is the shapes that need at most so much.
type step struct {
	Need    int64
	Content shapeSet
}

// content is the shapes to which so much is enough; steps lie in ascending order.
func content(steps []step, has int64) shapeSet {
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
	return steps[low-1].Content
}

func setsOf(shapes []typical, c Capacity) sets {
	s := sets{Models: make(map[string]shapeSet, len(c.Models))}
	for i := range shapes {
		m := &shapes[i]
		s.Time = append(s.Time, step{int64(m.Milli), 1 << i})
		s.Memory = append(s.Memory, step{int64(m.Memory), 1 << i})
		s.CPU = append(s.CPU, step{int64(m.CPU), 1 << i})
		s.RAM = append(s.RAM, step{int64(m.RAM), 1 << i})
		s.Weight[i], s.VGPUs[i] = m.weight, int32(m.VGPUs)
		s.Total += m.weight
	}
	s.Time, s.Memory, s.CPU, s.RAM = ascend(s.Time), ascend(s.Memory), ascend(s.CPU), ascend(s.RAM)
	for model := range c.Models {
		s.Models[model] = accepted(shapes, &Slice{Model: model})
	}
	return s
}

// ascend sorts the steps, adds to each the shapes that need less, and keeps one step of those that need the same.
func ascend(steps []step) []step {
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.Need, b.Need) })
	var out []step
	var content shapeSet
	for _, s := range steps {
		if content |= s.Content; len(out) == 0 || out[len(out)-1].Need != s.Need {
			out = append(out, step{Need: s.Need})
		}
		out[len(out)-1].Content = content
	}
	return out
}

// accepted is the set of shapes that may run on a slice of this kind and model.
func accepted(shapes []typical, s *Slice) shapeSet {
	var set shapeSet
	for i := range shapes {
		if shapes[i].accepts(s) {
			set |= 1 << i
		}
	}
	return set
}

// accepting is the set of typical shapes that may run on a slice of this kind and model.
func (d *Demand) accepting(s *Slice) shapeSet {
	if s.Profile == "" {
		if set, known := d.sets.Models[s.Model]; known {
			return set
		}
	}
	return accepted(d.shapes, s)
}

// fitting is the set of typical shapes of which the slice could take a vGPU.
func (d *Demand) fitting(time MilliGPU, memory share.Bytes, accepting shapeSet) shapeSet {
	return accepting & content(d.sets.Time, int64(time)) & content(d.sets.Memory, int64(memory))
}
