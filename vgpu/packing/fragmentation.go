package packing

import "github.com/gshare-dev/gshare/vgpu/share"

// view is a node as policy D values it: what is free on each slice, and what typical pods could use of it.
type view struct {
	slices []freeSlice
	uses   [maxTypical]use // by typical shape
	cpu    MilliCPU
	ram    share.Bytes
}

type freeSlice struct {
	time     MilliGPU
	memory   share.Bytes
	accepted uint64 // typical shapes by index
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
			f.accepted = v.slices[i-1].accepted
		} else {
			f.accepted = d.accepted(&n.Slices[i])
		}
		v.slices = append(v.slices, f)
		d.count(v, f, 1)
	}
}

// count adds a slice to the uses of those shapes that fit on it, or takes it away when sign is -1.
func (d *Demand) count(v *view, s freeSlice, sign int32) {
	for i := range d.shapes {
		if m := &d.shapes[i]; s.time >= m.Milli && s.memory >= m.Memory && s.accepted>>i&1 == 1 {
			v.uses[i].slices += sign
			v.uses[i].time += sign * int32(s.time)
		}
	}
}

// without makes out the view after the pod has taken its picks; scratch becomes its slices.
func (d *Demand) without(v *view, pod *Pod, picks []Choice, out *view, scratch []freeSlice) {
	*out = *v
	out.slices = append(scratch[:0], v.slices...)
	out.cpu -= pod.CPU
	out.ram -= pod.RAM
	for _, p := range picks {
		sh := pod.Request.Containers[p.Container].Share
		s := &out.slices[p.Slice]
		d.count(out, *s, -1)
		s.time = max(0, s.time-milli(sh.RequestArea()))
		s.memory -= sh.Memory
		d.count(out, *s, 1)
	}
}

// time is the free SM-time of the whole node.
func (v *view) time() MilliGPU {
	var sum MilliGPU
	for i := range v.slices {
		sum += v.slices[i].time
	}
	return sum
}

// fragmentation is F: the free SM-time that a random typical pod could not use (FGD's measure, exact and in integers).
func (d *Demand) fragmentation(v *view) ppmMilli {
	total := v.time()
	if total == 0 {
		return 0
	}
	var sum ppmMilli
	for i := range d.shapes {
		sum += ppmMilli(d.shapes[i].weight) * ppmMilli(d.unusable(v, i, total))
	}
	return sum
}

// unusable is the free SM-time of the node that a pod of typical shape i could not use: all of it when the pod does not
// fit at all, else that of the slices too small for it.
func (d *Demand) unusable(v *view, i int, total MilliGPU) MilliGPU {
	m := &d.shapes[i]
	if m.CPU > v.cpu || m.RAM > v.ram || int(v.uses[i].slices) < m.VGPUs {
		return total
	}
	return total - MilliGPU(v.uses[i].time)
}

// cpuShortage is S: the free SM-time that the CPU left on the node cannot serve at the cluster's usual ratio.
func (d *Demand) cpuShortage(v *view) ppmMilli {
	if d.cpuRatio == 0 {
		return 0
	}
	served := MilliGPU(int64(max(v.cpu, 0)) * int64(WholeGPU) / int64(d.cpuRatio))
	return ppmMilli(max(0, v.time()-served)) * ppmMilli(one)
}
