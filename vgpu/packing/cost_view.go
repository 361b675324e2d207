package packing

import (
	"math/bits"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// nodeView summarises a node for policy D: what is free on each of its slices, and what typical pods could use of it.
type nodeView struct {
	slices []freeSlice
	usable [maxTypical]usableSlices // by typical shape
	total  MilliGPU                 // free SM-time of all slices
	cpu    MilliCPU
	ram    share.Bytes
}

// freeSlice holds the free SM-time and memory of a slice, and the typical shapes (resource requests) that could use them.
type freeSlice struct {
	time      MilliGPU
	largest   MilliGPU // the most that one pod can request
	memory    share.Bytes
	accepting shapeSet
	fitting   shapeSet
	scarcity  ppm // of the model
}

// usableSlices counts the slices of a node that could each serve a vGPU of one typical shape, and adds up their free SM-time.
type usableSlices struct {
	slices int32
	time   int32 // milli-GPU
}

// fillView computes the summary v of a node, with scratch as memory for its slices.
func (d *Demand) fillView(n *Node, v *nodeView, scratch []freeSlice) {
	*v = nodeView{slices: scratch[:0], cpu: n.CPU, ram: n.RAM}
	for i := range n.Slices {
		f := freeSlice{time: n.freeSMTime(i), largest: n.largestRequest(i), memory: n.Slices[i].Memory - n.Loads[i].Memory()}
		if i > 0 && n.Slices[i].Model == n.Slices[i-1].Model && n.Slices[i].Profile == n.Slices[i-1].Profile {
			f.accepting, f.scarcity = v.slices[i-1].accepting, v.slices[i-1].scarcity
		} else {
			f.accepting, f.scarcity = d.shapesAccepting(&n.Slices[i]), d.scarcity[n.Slices[i].Model]
		}
		f.fitting = d.shapesFitting(f.largest, f.memory, f.accepting)
		v.slices = append(v.slices, f)
		v.total += f.time
		for shape := range f.fitting.all {
			v.usable[shape].slices++
			v.usable[shape].time += int32(f.time)
		}
	}
}

// sliceChange holds what is free on a slice before and after a pod is placed.
type sliceChange struct {
	slice         int
	before, after freeSlice
}

// sliceChanges appends to found what the picks change, one entry for each picked slice.
func (d *Demand) sliceChanges(v *nodeView, n *Node, pod *Pod, picks []Choice, found []sliceChange) []sliceChange {
	for _, p := range picks {
		at := indexOfChange(found, p.Slice)
		if at < 0 {
			at = len(found)
			found = append(found, sliceChange{slice: p.Slice, before: v.slices[p.Slice], after: v.slices[p.Slice]})
			if len(pod.Request.Weights) > 0 {
				found[at].after.memory -= n.Loads[p.Slice].MissingWeights(pod.Tenant, pod.Request.Weights)
			}
		}
		sh, s := &pod.Request.Containers[p.Container].Share, &found[at].after
		s.time = max(0, s.time-milliGPUOf(sh.RequestArea()))
		if p.Class == share.Swap { // no share of another class can be beside it
			s.time = 0
		}
		s.largest = min(s.time, WholeGPU-1)
		s.memory -= sh.Memory
		s.fitting = d.shapesFitting(s.largest, s.memory, s.accepting)
	}
	return found
}

// indexOfChange returns the index of the entry for a slice, or -1.
func indexOfChange(changed []sliceChange, slice int) int {
	for i := range changed {
		if changed[i].slice == slice {
			return i
		}
	}
	return -1
}

// fragmentationAfter returns F once the slices have changed as given and the given CPU and memory are taken. F is the free SM-time that a
// random typical pod could not use (FGD's measure, in integers): all of it if the pod does not fit the node, else that of the slices that
// are too small for the pod.
func (d *Demand) fragmentationAfter(v *nodeView, changed []sliceChange, cpu MilliCPU, ram share.Bytes) ppmMilli {
	total := v.freeTimeAfter(changed)
	usable := ppmMilli(0)
	for rest := satisfiedBy(d.sets.CPU, int64(v.cpu-cpu)) & satisfiedBy(d.sets.RAM, int64(v.ram-ram)); rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(uint64(rest))
		u := v.usable[i]
		for j := range changed {
			u.apply(&changed[j], i)
		}
		if u.slices >= d.sets.VGPUs[i] {
			usable += ppmMilli(d.sets.Weight[i]) * ppmMilli(u.time)
		}
	}
	return ppmMilli(d.sets.Total)*ppmMilli(total) - usable
}

// freeTimeAfter returns the free SM-time of the node once its slices have changed as given.
func (v *nodeView) freeTimeAfter(changed []sliceChange) MilliGPU {
	time := v.total
	for i := range changed {
		time += changed[i].after.time - changed[i].before.time
	}
	return time
}

// apply updates the count for typical shape i after one slice has changed.
func (u *usableSlices) apply(t *sliceChange, i int) {
	if t.before.fitting.has(i) {
		u.slices--
		u.time -= int32(t.before.time)
	}
	if t.after.fitting.has(i) {
		u.slices++
		u.time += int32(t.after.time)
	}
}

// cpuShortage returns S: the part of the given free SM-time that the free CPU does not cover when each GPU needs ρ CPUs.
func (d *Demand) cpuShortage(time MilliGPU, cpu MilliCPU) ppmMilli {
	if d.cpuRatio == 0 {
		return 0
	}
	served := MilliGPU(int64(max(cpu, 0)) * int64(WholeGPU) / int64(d.cpuRatio))
	return ppmMilli(max(0, time-served)) * ppmMilli(one)
}
