package packing

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ppm is a fraction in millionths.
type ppm int64

const one ppm = 1_000_000

// ppmMilli is a cost in millionths of a milli-GPU.
type ppmMilli int64

// Demand describes what the pods of a cluster typically request. It stays frozen until the requests have changed enough, so that ranks
// under the same Demand are comparable. The zero value is an unknown demand: all costs are zero and nodes are ranked by best fit.
type Demand struct {
	shapes   []typicalShape
	sets     shapeIndex
	stranded [WholeGPU + 1]ppmMilli // W of policy D, by free SM-time of a slice
	cpuRatio MilliCPU               // ρ of policy D: CPU that goes with one GPU; 0 when unknown
	scarcity map[string]ppm         // of each device model
}

// NewDemand returns the demand of the pods in a mix on a cluster of the given capacity.
func NewDemand(m *Mix, c Capacity) *Demand {
	d := &Demand{shapes: m.typicalShapes(), cpuRatio: cpuRatio(m, c), scarcity: scarcityByModel(m, c)}
	d.sets = newShapeIndex(d.shapes, c)
	d.computeStranded()
	return d
}

// computeStranded computes W(r), the SM-time expected to stay unused on a slice with r free while typical pods of one vGPU keep arriving: r
// if none of their shapes fits, else the weighted mean of W(r-m) over the shapes m that fit.
func (d *Demand) computeStranded() {
	for r := range d.stranded {
		var sum, weight int64
		for i := range d.shapes {
			m := &d.shapes[i]
			if m.VGPUs == 1 && m.Milli > 0 && m.Milli <= MilliGPU(r) {
				sum += int64(m.weight) * int64(d.stranded[r-int(m.Milli)])
				weight += int64(m.weight)
			}
		}
		d.stranded[r] = ppmMilli(r) * ppmMilli(one)
		if weight > 0 {
			d.stranded[r] = ppmMilli(sum / weight)
		}
	}
}

// cpuRatio returns ρ, the CPU to keep free for each free GPU. If the pods, scaled up until all GPUs are in use, would request more CPU than
// the cluster has, ρ follows the CPU that is still free, within bounds.
func cpuRatio(m *Mix, c Capacity) MilliCPU {
	if m.gpu == 0 {
		return 0
	}
	ofGPUPods := perGPU(m.cpu, m.gpu)
	ofAllPods := perGPU(c.CPU-c.FreeCPU, m.gpu)
	if float64(ofAllPods)*float64(c.GPU) <= float64(c.CPU)*float64(WholeGPU) { // in integers, a tiny mix would overflow
		return ofGPUPods
	}
	left := ofGPUPods
	if c.FreeGPU > 0 {
		left = perGPU(c.FreeCPU, c.FreeGPU)
	}
	return min(ofGPUPods*3/2, ofAllPods, max(ofGPUPods*9/10, left))
}

// perGPU returns the CPU for each whole GPU, given the CPU that goes with an amount of SM-time.
func perGPU(cpu MilliCPU, gpu MilliGPU) MilliCPU {
	return MilliCPU(int64(cpu) * int64(WholeGPU) / int64(gpu))
}

// maxScarcity bounds the scarcity of a model, so that a cost fits into a Rank however rare the model is.
const maxScarcity = 100 * one

// priorDemand is the demand assumed for each GPU model before any is observed: one pod of eight GPUs. Without it the first pods would fill
// rare models before those that require them arrive. On openb's gpuspec33, with the mix learned online, it raises the allocation at full
// load from 92.2 % to 94.5 %; on the default list it costs 0.04 points.
const priorDemand = 8 * WholeGPU

// scarcityByModel returns for each GPU model the demand that requires it, divided by the capacity of the models that can serve that demand.
// It counts all shapes of pods, not only the typical ones: many pods require a model, but each of their shapes is rare.
func scarcityByModel(m *Mix, c Capacity) map[string]ppm {
	out := map[string]ppm{}
	if m.gpu <= 0 {
		return out
	}
	insist := func(models []string, demand MilliGPU) {
		able := c.ofModels(models)
		if able == 0 {
			return
		}
		part := float64(one) * float64(demand) / float64(m.gpu) * float64(c.GPU) / float64(able)
		for _, model := range models {
			out[model] = min(maxScarcity, out[model]+ppm(min(part, float64(maxScarcity))))
		}
	}
	for model, gpu := range c.Models {
		insist([]string{model}, min(priorDemand, gpu))
	}
	for s, count := range m.counts {
		insist(splitModels(s.Models), MilliGPU(count)*MilliGPU(s.VGPUs)*s.Milli)
	}
	return out
}

// Epoch is the state of the cluster for which a Demand was computed. The ranks of nodes stay cached until it expires.
type Epoch struct {
	pods   int
	gpu    MilliGPU
	free   MilliGPU
	demand *Demand
}

// NewEpoch returns an epoch that begins with the present pods and capacity.
func NewEpoch(m *Mix, c Capacity) Epoch {
	return Epoch{pods: m.Pods(), gpu: c.GPU, free: c.FreeGPU, demand: NewDemand(m, c)}
}

// Changes of pods or of free GPU up to these amounts never expire an epoch, however large a part of the cluster they are.
const (
	fewPods    = 16
	littleFree = 4 * WholeGPU
)

// Expired reports whether the demand has changed enough to be computed anew, which invalidates all cached ranks. The demands are compared
// only if the pods or the free GPU changed by half since the last comparison; a change of the number of GPUs by a sixteenth always expires
// the epoch.
func (e *Epoch) Expired(m *Mix, c Capacity) bool {
	if 16*max(c.GPU-e.gpu, e.gpu-c.GPU) > e.gpu {
		return true
	}
	if !hasMoved(m.Pods(), e.pods, fewPods) && !hasMoved(c.FreeGPU, e.free, littleFree) {
		return false
	}
	e.pods, e.free = m.Pods(), c.FreeGPU
	return e.demand == nil || e.demand.differs(NewDemand(m, c), c)
}

// hasMoved reports whether a value has changed by more than half of the smaller of its two values, and by more than least.
func hasMoved[T ~int | ~int64](now, then, least T) bool {
	return max(now-then, then-now) > max(min(now, then)/2, least)
}

// Changes of demand up to these amounts are too small to matter. On openb's lists, ignoring them halves the number of demands that are
// frozen while a cluster fills, and moves the allocation by at most 0.05 points. The exception is cpu250, where CPU is scarce and the CPU
// ratio follows what is left: there it costs 0.16 points.
const (
	shapesMove   = one / 10 // fraction of the typical pods whose shape differs
	ratioMoves   = 20       // of the CPU that goes with a GPU, one part in this many
	scarcityMove = one / 20 // of the worth of a GPU, as a mean over the cluster's GPUs
)

// differs reports whether another demand differs from this one by enough to change ranks noticeably.
func (d *Demand) differs(o *Demand, c Capacity) bool {
	return d.distance(o) > shapesMove || max(d.cpuRatio-o.cpuRatio, o.cpuRatio-d.cpuRatio) > d.cpuRatio/ratioMoves ||
		d.scarcityChange(o, c) > scarcityMove
}

// distance returns the total variation distance between the typical pods of two demands: the fraction of pods whose shape would have to
// change.
func (d *Demand) distance(o *Demand) ppm {
	weights := make(map[Shape]ppm, len(d.shapes))
	for i := range d.shapes {
		weights[d.shapes[i].Shape] = d.shapes[i].weight
	}
	var more ppm
	for i := range o.shapes {
		more += max(0, o.shapes[i].weight-weights[o.shapes[i].Shape])
	}
	return more
}

// scarcityChange returns the absolute change of scarcity from one demand to another, as a mean over the GPUs of the cluster.
func (d *Demand) scarcityChange(o *Demand, c Capacity) ppm {
	var sum int64
	for model, gpus := range c.Models {
		change := o.scarcity[model] - d.scarcity[model]
		sum += int64(max(change, -change)) * int64(gpus)
	}
	return ppm(sum / int64(max(1, c.GPU)))
}

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
