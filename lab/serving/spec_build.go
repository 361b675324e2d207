package serving

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Replay describes how a trace is replayed as the load of a simulation.
type Replay struct {
	Series []arrival.Series
	Scale  float64       // of all functions
	Until  time.Duration // 0: as long as the trace
	Seed   uint64

	Geometry string        // of MIGSpec
	Step     time.Duration // period over which to average rates, if longer than the trace's steps: with few requests, short periods say little
}

// Build returns the input that a specification and a replayed trace describe. open returns the text of a table, given its name. Errors
// are *share.FieldError or those of open.
func (s *Spec) Build(l Replay, open func(name string) (string, error)) (*Input, error) {
	in := &Input{
		GPUs: s.GPUs, GPUMemory: share.Bytes(s.GPUMemoryMiB) * share.MiB, MIG: MIG{Model: s.MIG.Model},
		Models: s.Models, Prices: s.Prices, Platform: s.Platform, Until: l.Until, Seed: l.Seed,
	}
	if s.GPUMemoryMiB < 0 || s.GPUMemoryMiB > int64(share.MaxMemory/share.MiB) {
		return nil, share.Invalid("gpuMemoryMiB", "%d is outside 0 to %d", s.GPUMemoryMiB, share.MaxMemory/share.MiB)
	}
	var err error
	if in.MIG.GPUs, err = s.MIG.profilesByGPU(l.Geometry); err != nil {
		return nil, err
	}
	if len(s.Functions) > maxFunctions {
		return nil, share.Invalid("functions", "%d of them; want at most %d", len(s.Functions), maxFunctions)
	}
	if len(l.Series) == 0 {
		return nil, share.Invalid("trace", "has no series")
	}
	var sources []arrival.Source
	for i := range s.Functions {
		f, source, err := s.function(&s.Functions[i], l, open)
		if err != nil {
			return nil, profile.WithinField(fmt.Sprintf("functions[%d]", i), err)
		}
		in.Functions, sources = append(in.Functions, f), append(sources, source)
		if l.Until == 0 {
			in.Until = max(in.Until, source.Series.Length())
		}
	}
	if err := in.Validate(); err != nil { // before drawing the arrivals, which takes memory
		return nil, err
	}
	if err := expected(sources, in.Until); err != nil {
		return nil, err
	}
	in.Arrivals = arrival.Draw(sources, in.Until, l.Seed)
	return in, nil
}

// profilesByGPU returns the MIG profiles of each GPU in the named geometry. An empty name selects the only geometry.
func (m *MIGSpec) profilesByGPU(name string) ([][]string, error) {
	names := slices.Sorted(maps.Keys(m.Geometries))
	if name == "" && len(names) == 1 {
		name = names[0]
	}
	cuts, known := m.Geometries[name]
	if !known && (name != "" || len(names) > 0) {
		return nil, share.Invalid("mig.geometries", "%.64q is none of %v", name, names)
	}
	var gpus [][]string
	for i, c := range cuts {
		if c.Count < 1 || c.Count > maxGPUs {
			return nil, share.Invalid(fmt.Sprintf("mig.geometries.%.64s[%d].count", name, i), "%d is outside 1 to %d", c.Count, maxGPUs)
		}
		for range c.Count {
			gpus = append(gpus, c.Profiles)
		}
	}
	return gpus, nil
}

// maxArrivals is the maximum number of requests of a run, which bounds its memory.
const maxArrivals = 20_000_000

func expected(sources []arrival.Source, until time.Duration) error {
	sum := 0.0
	for _, s := range sources {
		sum += s.Scale * s.Series.Rate() * (until + s.Series.Length()).Seconds()
	}
	if sum > maxArrivals {
		return share.Invalid("scale", "about %.3g requests; want at most %d", sum, maxArrivals)
	}
	return nil
}

func (s *Spec) function(f *FunctionSpec, l Replay, open func(string) (string, error)) (Function, arrival.Source, error) {
	out := Function{Name: f.Name, Model: f.Model, Memory: share.Bytes(f.MemoryMiB) * share.MiB}
	for _, t := range []struct {
		field string
		from  float64
		to    *time.Duration
	}{{"slo", f.SLO, &out.SLO}, {"loadCold", f.LoadCold, &out.LoadCold}, {"loadWarm", f.LoadWarm, &out.LoadWarm}} {
		if !(t.from >= 0 && t.from <= 3600) {
			return out, arrival.Source{}, share.Invalid(t.field, "%v s is outside 0 to 3600", t.from)
		}
		*t.to = time.Duration(t.from * 1e9)
	}
	if f.MemoryMiB < 0 || f.MemoryMiB > int64(share.MaxMemory/share.MiB) {
		return out, arrival.Source{}, share.Invalid("memoryMiB", "%d is outside 0 to %d", f.MemoryMiB, share.MaxMemory/share.MiB)
	}
	if f.Shares != "" {
		text, err := open(f.Shares)
		if err != nil {
			return out, arrival.Source{}, err
		}
		if out.Points, err = ReadShares(text, f.Name, "GPU"); err != nil {
			return out, arrival.Source{}, profile.WithinField("shares", err)
		}
	}
	if err := s.readGraph(f, &out, open); err != nil {
		return out, arrival.Source{}, err
	}
	if f.Replicas != nil {
		r, err := f.Replicas.build(out.Memory)
		if err != nil {
			return out, arrival.Source{}, profile.WithinField("replicas", err)
		}
		out.Replicas = r
	}
	if f.Turns != nil {
		turns, err := f.Turns.build()
		if err != nil {
			return out, arrival.Source{}, profile.WithinField("turns", err)
		}
		out.Turns = turns
	}
	source, err := f.source(l)
	return out, source, err
}

func (f *FunctionSpec) source(l Replay) (arrival.Source, error) {
	scale := f.Scale
	if scale == 0 {
		scale = 1
	}
	series := l.Series[max(0, f.Series)%len(l.Series)]
	if f.Series == -1 {
		series = arrival.Sum(l.Series)
	}
	if n := int(l.Step / max(series.Step, 1)); n > 1 {
		series = series.Coarser(n)
	}
	if !(f.Shift >= 0 && f.Shift < 1) || f.Series < -1 {
		return arrival.Source{}, share.Invalid("series, shift", "%d and %v: want -1 or more, and a part from 0 to below 1", f.Series, f.Shift)
	}
	steps := time.Duration(f.Shift * float64(len(series.Counts)))
	source := arrival.Source{Series: &series, Scale: scale * l.Scale, Shift: steps * series.Step}
	return source, source.Validate()
}

// readGraph reads the components of a function and their profiles into out. With sloScale it sets the SLO to that multiple of their
// times.
func (s *Spec) readGraph(f *FunctionSpec, out *Function, open func(string) (string, error)) error {
	if !(f.SLOScale >= 0 && f.SLOScale <= 1000) || f.SLOScale > 0 && (f.SLO > 0 || len(f.Nodes) == 0) {
		return share.Invalid("sloScale", "%v: want a factor up to 1000, instead of slo and for nodes", f.SLOScale)
	}
	if len(f.Nodes) == 0 {
		return nil
	}
	if !(s.Transfer >= 0 && s.Transfer <= 3600) {
		return share.Invalid("transfer", "%v s is outside 0 to 3600", s.Transfer)
	}
	out.Graph = &pipeline.Function{Name: f.Name, Transfer: time.Duration(s.Transfer * 1e9)}
	alone := time.Duration(0)
	for i := range f.Nodes {
		node, slowest, err := s.readNode(f, i, open)
		if err != nil {
			return profile.WithinField(fmt.Sprintf("nodes[%d]", i), err)
		}
		out.Graph.Nodes = append(out.Graph.Nodes, node)
		alone += slowest
	}
	if f.SLOScale > 0 {
		out.SLO = time.Duration(f.SLOScale * float64(alone))
	}
	return out.Graph.Validate()
}

// readNode returns a component of a function with the execution times of its table, and its time on the smallest slice that holds it.
func (s *Spec) readNode(f *FunctionSpec, at int, open func(string) (string, error)) (pipeline.Node, time.Duration, error) {
	n := &f.Nodes[at]
	node := pipeline.Node{
		Name: n.Name, After: n.After, Memory: share.Bytes(n.MemoryMiB) * share.MiB, Chance: n.Chance, Times: map[string]time.Duration{},
	}
	if n.After == nil && at > 0 {
		node.After = []string{f.Nodes[at-1].Name}
	}
	model, err := mig.ModelNamed(s.MIG.Model)
	if err != nil {
		return node, 0, share.Invalid("mig.model", "%v", err)
	}
	if n.MemoryMiB < 1 || n.MemoryMiB > int64(share.MaxMemory/share.MiB) {
		return node, 0, share.Invalid("memoryMiB", "%d is outside 1 to %d", n.MemoryMiB, share.MaxMemory/share.MiB)
	}
	text, err := open(n.Table)
	if err != nil {
		return node, 0, err
	}
	rows, err := ReadSlices(text)
	if err != nil {
		return node, 0, profile.WithinField("table", err)
	}
	slowest := time.Duration(0)
	for _, row := range rows {
		for p := range model.Profiles {
			if k := pipeline.KindOf(&model.Profiles[p]); n.matches(row, &model.Profiles[p]) && k.Memory >= node.Memory {
				node.Times[k.Name] = row.Takes
				slowest = max(slowest, row.Takes)
			}
		}
	}
	if len(node.Times) == 0 {
		return node, 0, share.Invalid("batch", "%s has no batch of %d on a slice with %d MiB", n.Table, n.Batch, n.MemoryMiB)
	}
	return node, slowest, nil
}

// matches reports whether a row of the table has the component's batch size and is for a MIG profile on which the component runs.
// Profiles with media engines never match.
func (n *NodeSpec) matches(row SliceTime, p *mig.Profile) bool {
	return row.Batch == n.Batch && row.Compute == p.Compute && !p.Media && !slices.Contains(n.NotOn, p.Name)
}

// build returns the replicas that the specification describes. The simulation itself rejects what makes no valid policy.
func (r *ReplicasSpec) build(memory share.Bytes) (*Replicas, error) {
	window, keep := cmp.Or(r.Window, 10), cmp.Or(r.KeepShared, 120)
	for name, t := range map[string]float64{"takes": r.Takes, "ends": r.Ends, "keepShared": keep, "quotaWindow": r.QuotaWindow} {
		if !(t >= 0 && t <= 24*3600) {
			return nil, share.Invalid(name, "%v s is outside 0 to 86400", t)
		}
	}
	mib := int64(max(memory, share.MiB) / share.MiB)
	quota := cmp.Or(r.Quota, 100)
	limit := cmp.Or(r.QuotaLimit, quota)
	c, err := share.NewContainer("server", share.RawContainer{SM: &r.SM, Quota: &quota, Memory: &mib, VGPUs: new(int64(1))}, share.Limits{Quota: &limit})
	if err != nil {
		return nil, err
	}
	out, in := scaling.Votes(window)
	return &Replicas{
		Share: c.Share, Rate: scaling.Rate(r.RequestsPerSecond), Takes: time.Duration(r.Takes * 1e9), Ends: time.Duration(r.Ends * 1e9),
		Window: time.Duration(r.QuotaWindow * 1e9),
		Policy: scaling.Policy{
			Window: time.Duration(window) * time.Second, Out: cmp.Or(r.ScaleOutVotes, out), In: cmp.Or(r.ScaleInVotes, in),
			Min: r.MinReplicas, Max: cmp.Or(r.MaxReplicas, max(10, r.MinReplicas)), SharedFor: time.Duration(keep * 1e9), Reserve: true, Predict: scaling.Kalman,
		},
	}, nil
}

func (t *TurnsSpec) build() (*Turns, error) {
	turns := &Turns{Slice: t.Slice}
	for _, times := range []struct {
		field string
		from  []float64
		to    *[]time.Duration
	}{{"begins", t.Begins, &turns.Begins}, {"leaves", t.Leaves, &turns.Leaves}} {
		for _, seconds := range times.from {
			if !(seconds >= 0 && seconds <= 3600) {
				return nil, share.Invalid(times.field, "%v s is outside 0 to 3600", seconds)
			}
			*times.to = append(*times.to, time.Duration(seconds*1e9))
		}
	}
	if !(t.Takes >= 0 && t.Takes <= 3600) {
		return nil, share.Invalid("takes", "%v s is outside 0 to 3600", t.Takes)
	}
	turns.Takes = time.Duration(t.Takes * 1e9)
	return turns, turns.validate()
}
