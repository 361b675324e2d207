package packing

// Capacity is what a cluster has, and what of it is free.
type Capacity struct {
	GPU     MilliGPU
	FreeGPU MilliGPU
	CPU     MilliCPU
	FreeCPU MilliCPU
	Models  map[string]MilliGPU // by device model
}

// CapacityOf is what one node adds to the capacity of its cluster; cpu is all that its pods may use.
func CapacityOf(n *Node, cpu MilliCPU) Capacity {
	c := Capacity{CPU: cpu, FreeCPU: max(0, n.CPU), Models: map[string]MilliGPU{}}
	for i := range n.Slices {
		c.GPU += WholeGPU
		c.FreeGPU += n.free(i)
		c.Models[n.Slices[i].Model] += WholeGPU
	}
	return c
}

// Add counts another capacity in, or out when sign is -1. The receiver must have a map of models.
func (c *Capacity) Add(o Capacity, sign int) {
	c.GPU += MilliGPU(sign) * o.GPU
	c.FreeGPU += MilliGPU(sign) * o.FreeGPU
	c.CPU += MilliCPU(sign) * o.CPU
	c.FreeCPU += MilliCPU(sign) * o.FreeCPU
	for model, gpu := range o.Models {
		c.Models[model] += MilliGPU(sign) * gpu
	}
}

// of is the SM-time of the models named.
func (c *Capacity) of(models []string) MilliGPU {
	var sum MilliGPU
	for _, model := range models {
		sum += c.Models[model]
	}
	return sum
}
