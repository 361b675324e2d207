package cluster

// Idle says why GPUs are idle at the end of a simulation, in percent of the cluster's GPUs: what prevents them from serving the pods that
// were refused. Each reason applies to the refused requests that the reasons before it do not exclude; the first one that excludes all of
// them counts.
type Idle struct {
	Unwanted float64 // no pod was refused
	Fragment float64 // the rest of a device is smaller than every request that was refused, or too few devices of the node have enough
	Model    float64 // none of these requests accepts the GPU's model
	CPU      float64 // the node has too little CPU for each of these
	Memory   float64 // the node has too little memory for those with enough CPU
}

// Total returns the sum over the reasons.
func (i Idle) Total() float64 { return i.Unwanted + i.Fragment + i.Model + i.CPU + i.Memory }

// idle returns the reasons at the end of the simulation.
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

// reason returns the field that counts the free part of the machine's given device.
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
