// Package cluster replays a list of pods on GPU nodes by the method of FGD (Weng et al., ATC'23), to compare how much of the
// GPUs the published policies and gshare's own allocate.
//
// The seed shuffles the list. Pods arrive until they have requested Load times the GPUs of the cluster: a list that requests
// more is cut there, and one that requests less continues with pods drawn from itself. No pod departs, and a pod that does not
// fit is dropped. Pods without GPUs take part, and CPU and memory are counted.
package cluster

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Node describes one machine as it is when empty.
type Node struct {
	Name  string
	CPU   packing.MilliCPU
	RAM   share.Bytes
	GPUs  int
	Model string // of its GPUs
}

// Pod describes a pod's request: either a part of one GPU, or several whole GPUs.
type Pod struct {
	CPU    packing.MilliCPU
	RAM    share.Bytes
	GPUs   int
	Milli  packing.MilliGPU // of each GPU
	Models []string         // acceptable ones, sorted; empty accepts every model
}

func (p *Pod) gpu() packing.MilliGPU { return packing.MilliGPU(p.GPUs) * p.Milli }

// Config is the input of a simulation. Every field is required.
type Config struct {
	Nodes  []Node
	Pods   []Pod
	Policy string  // one of Policies or Tries
	Order  string  // order of the nodes, one of Orders: if a policy is indifferent, the first node wins
	Load   float64 // total requests at the end, as a multiple of the cluster's GPUs
	Seed   uint64
}

// Result is the outcome of a simulation.
type Result struct {
	Decisions     int     // pods that arrived
	AllocatedFull float64 // percent of the GPUs in use when pods for 100 % of them had arrived
	AllocatedEnd  float64 // percent of the GPUs in use at the end
	Fragmentation float64 // percent of the GPUs that are idle at the end and useless to a random typical pod (FGD's F)
	Idle          Idle    // why GPUs are idle at the end
	Curve         []Point // one for each percent of load
}

// Point is the percentage of the cluster's GPUs that is allocated when pods for a given percentage of them have arrived.
type Point struct{ Arrived, Allocated float64 }

// Simulation replays the arrival of pods at a cluster under one policy. See New and Run.
type Simulation struct {
	load     float64
	random   *rand.Rand
	machines []*machine
	shapes   []*shape
	list     []*shape // the pods in the order of arrival
	policy   policy
	typical  []typicalPod
	capacity packing.MilliGPU
	used     packing.MilliGPU
	refused  map[*shape]bool // requests for which a pod was dropped
}

// policy chooses a machine for each pod, and is informed of every placed pod.
type policy interface {
	choose(s *shape) (machine int, gpus []int, ok bool)
	placed(s *shape, machine int, gpus []int)
}

// New returns a simulation of an empty cluster. Equal configurations have equal results.
func New(c Config) (*Simulation, error) {
	s := &Simulation{load: c.Load, random: rand.New(rand.NewPCG(c.Seed, 1)), refused: map[*shape]bool{}}
	if err := s.populate(c); err != nil {
		return nil, err
	}
	build, known := policies[c.Policy]
	if !known {
		build, known = tries[c.Policy]
	}
	if !known {
		return nil, fmt.Errorf("policy %q is none of %v", c.Policy, Policies())
	}
	s.typical = typicalPods(c.Pods)
	s.policy = build(s)
	return s, nil
}

// populate creates the machines in the configured order and shuffles the list of pods.
func (s *Simulation) populate(c Config) error {
	rank, err := rankNodes(c.Order, c.Nodes, s.random)
	if err != nil {
		return err
	}
	var demand packing.MilliGPU
	for i, n := range c.Nodes {
		s.machines = append(s.machines, newMachine(n, rank[i]))
		s.capacity += packing.MilliGPU(n.GPUs) * packing.WholeGPU
	}
	s.shapes, s.list = shapesOf(c.Pods)
	for i := range c.Pods {
		demand += c.Pods[i].gpu()
	}
	if s.capacity == 0 || demand == 0 {
		return fmt.Errorf("%d thousandths of GPUs are there and %d are asked for: nothing to simulate", s.capacity, demand)
	}
	s.random.Shuffle(len(s.list), func(i, j int) { s.list[i], s.list[j] = s.list[j], s.list[i] })
	return nil
}

// Run replays the arrivals and returns the result. It can be called only once.
func (s *Simulation) Run(ctx context.Context) (Result, error) {
	var r Result
	var arrived packing.MilliGPU
	for next := range s.decisions() {
		if r.Decisions%1024 == 0 && ctx.Err() != nil {
			return Result{}, ctx.Err()
		}
		arrived += next.pod.gpu()
		s.recordCurve(&r, arrived)
		s.decide(next)
		r.Decisions++
	}
	s.recordCurve(&r, s.end()+1)
	r.AllocatedEnd = s.percent(s.used)
	r.Idle = s.idle()
	r.Fragmentation = s.percent(packing.MilliGPU(s.fragmentation()))
	return r, nil
}

// end returns how much GPU the arriving pods may request in total.
func (s *Simulation) end() packing.MilliGPU { return packing.MilliGPU(s.load * float64(s.capacity)) }

// arrivals yields the pods in the order of arrival, and stops before the first one with which the requests would exceed the end.
func (s *Simulation) arrivals() iter.Seq[*shape] {
	return func(yield func(*shape) bool) {
		arrived := packing.MilliGPU(0)
		for i := 0; ; i++ {
			next := s.nextPod(i)
			if arrived += next.pod.gpu(); arrived > s.end() || !yield(next) {
				return
			}
		}
	}
}

// Arrivals returns the pods that arrive in a simulation with this configuration, in order. With a policy that draws random numbers,
// other pods of the list are repeated.
func Arrivals(c Config) ([]Pod, error) {
	s, err := New(c)
	if err != nil {
		return nil, err
	}
	var pods []Pod
	for next := range s.arrivals() {
		pods = append(pods, *next.pod)
	}
	return pods, nil
}

// nextPod returns the i-th pod to arrive: from the list, or a random pod of the list once all have arrived.
func (s *Simulation) nextPod(i int) *shape {
	if i < len(s.list) {
		return s.list[i]
	}
	return s.list[s.random.IntN(len(s.list))]
}

// recordCurve appends the percentage of allocated GPUs to the result's curve, for every whole percent of load up to what has arrived.
func (s *Simulation) recordCurve(r *Result, arrived packing.MilliGPU) {
	for at := float64(len(r.Curve)); at < s.percent(arrived); at++ {
		r.Curve = append(r.Curve, Point{Arrived: at, Allocated: s.percent(s.used)})
		if at <= 100 {
			r.AllocatedFull = s.percent(s.used)
		}
	}
}

func (s *Simulation) decide(next *shape) {
	at, gpus, ok := s.policy.choose(next)
	if !ok {
		s.refused[next] = true
		return
	}
	s.machines[at].place(next, gpus)
	s.used += next.pod.gpu()
	s.policy.placed(next, at, gpus)
}

func (s *Simulation) percent(gpu packing.MilliGPU) float64 {
	return 100 * float64(gpu) / float64(s.capacity)
}

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
