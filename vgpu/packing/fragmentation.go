package packing

import (
	"math/bits"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// view is a node as policy D values it: what is free on each slice, and what typical pods could use of it.
type view struct {
	slices []freeSlice
	uses   [maxTypical]use // by typical shape
	total  MilliGPU        // free SM-time of all slices
	cpu    MilliCPU
	ram    share.Bytes
}

type freeSlice struct {
	time      MilliGPU
	memory    share.Bytes
	accepting shapeSet
	fitting   shapeSet
	pressure  ppm // on the model
}

// use is the slices that could each serve a vGPU of one typical shape: their number and their free SM-time.
type use struct {
	slices int32
	time   int32 // milli-GPU
}

// viewOf reads the node into v and its slices into scratch, which it may grow.
func (d *Demand) viewOf(n *Node, v *view, scratch []freeSlice) {
	*v = view{slices: scratch[:0], cpu: n.CPU, ram: n.RAM}
	for i := range n.Slices {
		f := freeSlice{time: n.free(i), memory: n.Slices[i].Memory - n.Loads[i].Memory()}
		if i > 0 && n.Slices[i].Model == n.Slices[i-1].Model && n.Slices[i].Profile == n.Slices[i-1].Profile {
			f.accepting, f.pressure = v.slices[i-1].accepting, v.slices[i-1].pressure
		} else {
			f.accepting, f.pressure = d.accepting(&n.Slices[i]), d.pressure[n.Slices[i].Model]
		}
		f.fitting = d.fitting(f.time, f.memory, f.accepting)
		v.slices = append(v.slices, f)
		v.total += f.time
		for shape := range f.fitting.all {
			v.uses[shape].slices++
			v.uses[shape].time += int32(f.time)
		}
	}
}

// turn is what a pod makes of one slice.
type turn struct {
	slice         int
	before, after freeSlice
}

// turns adds to found what the pod's picks make of the slices, one for each slice.
func (d *Demand) turns(v *view, pod *Pod, picks []Choice, found []turn) []turn {
	for _, p := range picks {
		at := indexOf(found, p.Slice)
		if at < 0 {
			at = len(found)
			found = append(found, turn{slice: p.Slice, before: v.slices[p.Slice], after: v.slices[p.Slice]})
		}
		sh, s := &pod.Request.Containers[p.Container].Share, &found[at].after
		s.time = max(0, s.time-milli(sh.RequestArea()))
		s.memory -= sh.Memory
		s.fitting = d.fitting(s.time, s.memory, s.accepting)
	}
	return found
}

func indexOf(turns []turn, slice int) int {
	for i := range turns {
		if turns[i].slice == slice {
			return i
		}
	}
	return -1
}

// fragmentation is F: the free SM-time that a random typical pod could not use (FGD's measure, exact and in integers). That is
// all of it when the pod does not fit at all, else that of the slices too small for it.
func (d *Demand) fragmentation(v *view) ppmMilli { return d.fragmentationAfter(v, nil, 0, 0) }

// fragmentationAfter is F once the slices have turned and so much CPU and memory is taken too.
func (d *Demand) fragmentationAfter(v *view, turns []turn, cpu MilliCPU, ram share.Bytes) ppmMilli {
	total := v.timeAfter(turns)
	usable := ppmMilli(0)
	for rest := content(d.sets.CPU, int64(v.cpu-cpu)) & content(d.sets.RAM, int64(v.ram-ram)); rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(uint64(rest))
		u := v.uses[i]
		for j := range turns {
			u.turn(&turns[j], i)
		}
		if u.slices >= d.sets.VGPUs[i] {
			usable += ppmMilli(d.sets.Weight[i]) * ppmMilli(u.time)
		}
	}
	return ppmMilli(d.sets.Total)*ppmMilli(total) - usable
}

// timeAfter is the free SM-time of the whole node once the slices have turned.
func (v *view) timeAfter(turns []turn) MilliGPU {
	time := v.total
	for i := range turns {
		time += turns[i].after.time - turns[i].before.time
	}
	return time
}

// turn counts what becomes of one slice for shape i.
func (u *use) turn(t *turn, i int) {
	if t.before.fitting.has(i) {
		u.slices--
		u.time -= int32(t.before.time)
	}
	if t.after.fitting.has(i) {
		u.slices++
		u.time += int32(t.after.time)
	}
}

// cpuShortage is S: the free SM-time that the CPU left on the node cannot serve at the cluster's usual ratio.
func (d *Demand) cpuShortage(v *view) ppmMilli { return d.shortage(v.total, v.cpu) }

func (d *Demand) shortage(time MilliGPU, cpu MilliCPU) ppmMilli {
	if d.cpuRatio == 0 {
		return 0
	}
	served := MilliGPU(int64(max(cpu, 0)) * int64(WholeGPU) / int64(d.cpuRatio))
	return ppmMilli(max(0, time-served)) * ppmMilli(one)
}
