package cluster

// Idle says why GPUs are idle at the end of a simulation, in percent of the GPUs of the cluster: what is in the way of the pods that were
// refused. The first reason counts that holds for all of them that the reasons before have left.
type Idle struct {
	Unwanted float64 // no pod was refused
	Fragment float64 // the rest of a device is smaller than every request that was refused, or too few devices of the node have enough
	Model    float64 // none of them accepts the model
	CPU      float64 // the node has too little CPU for each of them
	Memory   float64 // the node has too little memory for those for which it has the CPU
}

// Total returns the sum over the reasons.
func (i Idle) Total() float64 { return i.Unwanted + i.Fragment + i.Model + i.CPU + i.Memory }

// idle returns the account of the simulation's end.
func (s *Simulation) idle() Idle {
	var out Idle
	for _, m := range s.machines {
		for g, free := range m.free {
			if free > 0 {
				*s.reason(&out, m, g) += s.percent(free)
			}
		}
	}
	return out
}

// reason returns the field of the account that the rest of the machine's device belongs to.
func (s *Simulation) reason(to *Idle, m *machine, device int) *float64 {
	large, accepted, enoughCPU := false, false, false
	for _, shape := range s.shapes {
		p := shape.pod
		if !s.refused[shape] || p.GPUs == 0 || m.free[device] < p.Milli || !m.hasFree(p.GPUs, p.Milli) {
			continue
		}
		large = true
		if !p.accepts(m.Model) {
			continue
		}
		accepted = true
		enoughCPU = enoughCPU || p.CPU <= m.cpu
	}
	switch {
	case len(s.refused) == 0:
		return &to.Unwanted
	case !large:
		return &to.Fragment
	case !accepted:
		return &to.Model
	case !enoughCPU:
		return &to.CPU
	}
	return &to.Memory
}
