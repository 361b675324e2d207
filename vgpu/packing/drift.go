package packing

// Changes of demand too small to matter. On openb's lists they halve the number of demands that are frozen while a cluster
// fills and move the allocation by at most 0.05 points, but on cpu250, where CPU is scarce and its ratio follows what is left:
// there they cost 0.16.
const (
	shapesMove   = one / 10 // part of the typical pods that would have to be others
	ratioMoves   = 20       // one part in so many of the CPU that goes with a GPU
	pressureMove = one / 20 // of a GPU's worth, mean over the cluster's GPUs
)

// differs says that ranks under the other demand would be other ones.
func (d *Demand) differs(o *Demand, c Capacity) bool {
	return d.distance(o) > shapesMove || max(d.cpuRatio-o.cpuRatio, o.cpuRatio-d.cpuRatio) > d.cpuRatio/ratioMoves ||
		d.pressureChange(o, c) > pressureMove
}

// distance is the total variation between the typical pods: the part of them that would have to change.
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

// pressureChange is by how much the pressure on a model has changed, in the mean over the GPUs.
func (d *Demand) pressureChange(o *Demand, c Capacity) ppm {
	var sum int64
	for model, gpus := range c.Models {
		change := o.pressure[model] - d.pressure[model]
		sum += int64(max(change, -change)) * int64(gpus)
	}
	return ppm(sum / int64(max(1, c.GPU)))
}
