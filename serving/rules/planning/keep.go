package planning

import (
	"slices"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Keep returns what an earlier plan costs with the rates, SLOs, latency models and prices of in. Groups and configurations stay the same;
// only the number of instances of a reserved share may change. Keep reports false if a group can no longer be served this way, or if the
// groups are not a partition of the applications. Errors are *share.FieldError.
//
// The difference between this cost and that of Best is what a change of the plan would save. From it a caller decides whether the change
// is worth the disruption.
func Keep(in Input, groups []Group) (Plan, bool, error) {
	if err := in.Validate(); err != nil {
		return Plan{}, false, err
	}
	var plan Plan
	seen := map[string]bool{}
	for i := range groups {
		g, ok := in.keepGroup(&groups[i], seen)
		if !ok {
			return Plan{}, false, nil
		}
		plan.Groups = append(plan.Groups, g)
		plan.Cost += g.Cost
	}
	return plan, len(seen) == len(in.Applications), nil
}

// keepGroup returns the group with the present values of its applications, and false if its configuration can no longer serve them. It
// adds the names of the applications to seen.
func (in *Input) keepGroup(g *Group, seen map[string]bool) (Group, bool) {
	var own []Application
	for _, old := range g.Applications {
		at := slices.IndexFunc(in.Applications, func(a Application) bool { return a.Name == old.Name })
		if at < 0 || seen[old.Name] {
			return Group{}, false
		}
		seen[old.Name] = true
		own = append(own, in.Applications[at])
		if own[0].Model != in.Applications[at].Model {
			return Group{}, false
		}
	}
	if len(own) == 0 || !contains(in.Modes, g.Config.Mode) {
		return Group{}, false
	}
	slices.SortFunc(own, compareUrgency)
	o, ok := onlyOption(in.model(own[0].Model), g.Config, in)
	if !ok {
		return Group{}, false
	}
	c := o.provision(newDemand(own))
	return newGroup(own, c), c.feasible()
}

// onlyOption returns the options of a model restricted to one configuration, and false if the model or the platform no longer has it.
func onlyOption(m *profile.Model, c Config, in *Input) (*options, bool) {
	c.Instances = 0
	o := &options{}
	if !has(m, c.Mode) || c.Batch < 1 {
		return nil, false
	}
	switch c.Mode {
	case CPU:
		if c.Batch > len(m.CPU.Mean) || c.CPU < in.Platform.MinCPU || c.CPU > in.Platform.MaxCPU {
			return nil, false
		}
		memory, ok := in.Platform.functionMemory(c.CPU, m.CPU.Memory.Memory(c.Batch))
		if !ok || memory > c.Memory {
			return nil, false
		}
		o.add([]option{cpuOption(m.CPU, c.Batch, c.CPU, c.Memory, in)})
	case GPU:
		if c.Batch > m.GPU.MaxBatch || c.GPUGB < 1 || c.GPUGB > m.GPU.CardGB || m.GPU.Memory.Memory(c.Batch) > share.Bytes(c.GPUGB)*gb {
			return nil, false
		}
		o.add([]option{gpuOption(m.GPU, c.Batch, c.GPUGB, in)})
	case Partitioned:
		if c.Batch > m.Partitioned.Batches() || !fitsStages(c.Workers, m.Partitioned, c.Batch, in) {
			return nil, false
		}
		l := m.Partitioned.Latency(c.Batch, c.Workers)
		o.add([]option{{&c, l, partitionedCost(m.Partitioned, c.Batch, c.Workers, l.Mean, in)}})
	case Share:
		at := slices.IndexFunc(m.Share.Curves, func(curve profile.ShareCurve) bool { return curve.SM == c.SM })
		if at < 0 || c.Batch > m.Share.MaxBatch || c.Quota < 1 || c.Quota > share.Whole || m.Share.Memory.Memory(c.Batch) > c.Memory {
			return nil, false
		}
		o.configs = []Config{c}
		o.reserved = paretoReserved(appendRounds(nil, 0, &c, m.Share.Latency(c.Batch, at, c.Quota), in))
	}
	return o, true
}

// fitsStages reports whether there is a function size with enough memory for each worker of each stage of a partitioned model.
func fitsStages(workers [][]profile.MilliCPU, m *profile.Partitioned, batch int, in *Input) bool {
	if len(workers) != len(m.Stages) {
		return false
	}
	for s := range workers {
		if len(workers[s]) != len(m.Stages[s].Workers) {
			return false
		}
		for w, c := range workers[s] {
			if c < in.Platform.MinCPU || c > in.Platform.MaxCPU {
				return false
			}
			if _, ok := workerCost(&m.Stages[s].Workers[w], batch, c, in); !ok {
				return false
			}
		}
	}
	return true
}
