package cluster

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/rebalance"
)

// ChurnConfig is the input of Churn: pods of a list come and go on a cluster until its pods are scattered, and then most of them end.
type ChurnConfig struct {
	Nodes    []Node
	Pods     []Pod
	Order    string  // order of the nodes, one of Orders
	Load     float64 // fraction of the cluster's GPUs that running pods request while pods come and go
	Turnover float64 // how often each running pod is replaced by another, on average
	Left     float64 // fraction of the load that still runs at the end
	Seed     uint64
}

// ChurnResult counts GPUs in use, that is, GPUs that hold a pod.
type ChurnResult struct {
	Pods       int // pods that hold GPUs at the end
	Churned    int // GPUs in use then
	Rebalanced int // after the moves of package rebalance
	Followed   int // after the same evictions, when gshare's scheduler chooses the places by itself
	Fresh      int // when the same pods are packed anew, the largest first and each on the fullest GPU with room
	Scheduled  int // when gshare's scheduler places the same pods anew, in random order
	Moves      int
	Impossible int // moves that found no room when their turn came, checked without package packing
	Lost       int // pods that the scheduler could not place again in Followed
}

// churn is a simulation in which pods also end.
type churn struct {
	*Simulation
	policy *gsharePolicy
	pods   []*runningPod
	on     [][]*runningPod // by machine
}

type runningPod struct {
	shape   *shape
	machine int
	gpus    []int
	plan    packing.Plan
}

// Churn lets pods come and go under gshare's policy, and then rebalances the cluster.
func Churn(ctx context.Context, c ChurnConfig) (ChurnResult, error) {
	h, err := newChurn(c)
	if err != nil {
		return ChurnResult{}, err
	}
	if err := h.comeAndGo(ctx, c); err != nil {
		return ChurnResult{}, err
	}
	r := ChurnResult{Churned: h.inUse(), Fresh: h.packAnew(), Pods: len(h.gpuPods())}
	if r.Scheduled, err = h.scheduleAnew(c); err != nil {
		return ChurnResult{}, err
	}
	plan, pods := h.rebalance()
	r.Moves = len(plan.Moves)
	other, err := h.clone(c)
	if err != nil {
		return ChurnResult{}, err
	}
	r.Lost = other.follow(plan, other.gpuPods())
	r.Followed = other.inUse()
	r.Impossible = h.replay(plan, pods)
	r.Rebalanced = h.inUse()
	return r, nil
}

func newChurn(c ChurnConfig) (*churn, error) {
	if c.Load <= 0 || c.Load > 1 || c.Left <= 0 || c.Left > 1 || c.Turnover < 0 {
		return nil, fmt.Errorf("a load of %v, of which %v is left, or a turnover of %v is not possible", c.Load, c.Left, c.Turnover)
	}
	s, err := New(Config{Nodes: c.Nodes, Pods: c.Pods, Policy: "gshare", Order: c.Order, Load: c.Load, Seed: c.Seed})
	if err != nil {
		return nil, err
	}
	return &churn{Simulation: s, policy: s.policy.(*gsharePolicy), on: make([][]*runningPod, len(s.machines))}, nil
}

// comeAndGo fills the cluster, replaces its pods, and lets some end.
func (h *churn) comeAndGo(ctx context.Context, c ChurnConfig) error {
	for next := range h.arrivals() {
		h.start(next)
	}
	for i := range int(c.Turnover * float64(len(h.pods))) {
		if i%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		next := h.list[h.random.IntN(len(h.list))]
		h.endUntil(h.end() - next.pod.gpu())
		h.start(next)
	}
	h.endUntil(packing.MilliGPU(c.Left * float64(h.end())))
	return nil
}

// endUntil ends random pods until at most the given amount is in use.
func (h *churn) endUntil(used packing.MilliGPU) {
	for h.used > used {
		h.stop(h.pods[h.random.IntN(len(h.pods))])
	}
}

// start places a pod as the scheduler would, and reports whether it could.
func (h *churn) start(s *shape) bool {
	at, gpus, ok := h.policy.choose(s)
	if ok {
		p := &runningPod{s, at, gpus, h.policy.plan}
		h.pods = append(h.pods, p)
		h.put(p)
	}
	return ok
}

func (h *churn) stop(p *runningPod) {
	h.pods = slices.DeleteFunc(h.pods, func(o *runningPod) bool { return o == p })
	h.take(p)
}

// put and take add a running pod to the resources of its machine, and remove it.
func (h *churn) put(p *runningPod) {
	h.on[p.machine] = append(h.on[p.machine], p)
	h.machines[p.machine].place(p.shape, p.gpus)
	h.policy.plan = p.plan
	h.policy.placed(p.shape, p.machine, p.gpus)
	h.used += p.shape.pod.gpu()
}

func (h *churn) take(p *runningPod) {
	h.on[p.machine] = slices.DeleteFunc(h.on[p.machine], func(o *runningPod) bool { return o == p })
	h.machines[p.machine].remove(p.shape, p.gpus)
	h.policy.removed(p, h.machines[p.machine], h.on[p.machine])
	h.used -= p.shape.pod.gpu()
}

// remove adds the pod's request to the free resources of the machine and of the given GPUs.
func (m *machine) remove(s *shape, gpus []int) {
	m.version++
	m.cpu += s.pod.CPU
	m.ram += s.pod.RAM
	m.left += s.pod.gpu()
	for _, g := range gpus {
		m.free[g] += s.pod.Milli
	}
}

// removed updates the node and the demand for a pod that has ended, given those that stay.
func (b *gsharePolicy) removed(p *runningPod, m *machine, stay []*runningPod) {
	n := m.packingNode()
	for _, o := range stay {
		n.Take(packing.Slots, b.pods[o.shape.index].pod, o.plan)
		n.CPU -= o.shape.pod.CPU
		n.RAM -= o.shape.pod.RAM
	}
	b.nodes[p.machine] = n
	b.total.FreeCPU += p.shape.pod.CPU
	b.total.FreeGPU += p.shape.pod.gpu()
	if p.shape.pod.GPUs > 0 {
		b.mix.Add(b.pods[p.shape.index].shape, -1)
	}
	b.set(p.machine)
}

// clone returns a churn of the same pods at the same places.
func (h *churn) clone(c ChurnConfig) (*churn, error) {
	out, err := newChurn(c)
	if err != nil {
		return nil, err
	}
	for _, p := range h.pods {
		same := *p
		same.shape = out.shapes[p.shape.index]
		out.pods = append(out.pods, &same)
		out.put(&same)
	}
	return out, nil
}

// inUse returns the number of GPUs that hold a pod.
func (h *churn) inUse() (n int) {
	for _, m := range h.machines {
		n += m.GPUs - m.unusedGPUs()
	}
	return n
}

func (h *churn) gpuPods() (list []*runningPod) {
	for _, p := range h.pods {
		if p.shape.pod.GPUs > 0 {
			list = append(list, p)
		}
	}
	return list
}

// rebalance plans moves, and returns them with the pods to which their indices refer. Pods without GPUs stay.
func (h *churn) rebalance() (rebalance.Plan, []*runningPod) {
	c := &rebalance.Cluster{Packer: h.policy.packer}
	for i, m := range h.machines {
		n := m.packingNode()
		for _, p := range h.on[i] {
			if p.shape.pod.GPUs == 0 {
				n.CPU -= p.shape.pod.CPU
				n.RAM -= p.shape.pod.RAM
			}
		}
		c.Nodes = append(c.Nodes, n)
	}
	pods := h.gpuPods()
	for _, p := range pods {
		c.Pods = append(c.Pods, rebalance.Pod{Pod: *h.policy.pods[p.shape.index].pod, Node: p.machine, Plan: p.plan, Movable: true})
	}
	return rebalance.Free(c, rebalance.Limits{Moves: len(pods)}), pods
}

// replay makes the moves, and returns how many find no room when they are made, according to the machines' own accounts of their resources.
func (h *churn) replay(plan rebalance.Plan, pods []*runningPod) (impossible int) {
	for _, m := range plan.Moves {
		p, gpus := pods[m.Pod], gpusOf(m.Plan)
		h.take(p)
		to := h.machines[m.To]
		ok := to.fits(p.shape.pod) && len(gpus) == p.shape.pod.GPUs
		for _, g := range gpus {
			ok = ok && to.free[g] >= p.shape.pod.Milli
		}
		if !ok {
			impossible++
		}
		p.machine, p.gpus, p.plan = m.To, gpus, m.Plan
		h.put(p)
	}
	return impossible
}

// follow evicts the pods of the moves, one GPU's pods at a time, and lets the scheduler place them again. It returns how many the scheduler
// could not place.
func (h *churn) follow(plan rebalance.Plan, pods []*runningPod) (lost int) {
	for moves := plan.Moves; len(moves) > 0; {
		first, n := pods[moves[0].Pod], 1
		for n < len(moves) && isBeside(pods[moves[n].Pod], first) {
			n++
		}
		for _, m := range moves[:n] {
			h.stop(pods[m.Pod])
		}
		for _, m := range moves[:n] {
			if !h.start(pods[m.Pod].shape) {
				lost++
			}
		}
		moves = moves[n:]
	}
	return lost
}

// isBeside reports whether two pods share a GPU.
func isBeside(a, b *runningPod) bool {
	return a.machine == b.machine && slices.ContainsFunc(a.gpus, func(g int) bool { return slices.Contains(b.gpus, g) })
}

// packAnew returns the number of GPUs in use after packing the pods with GPUs anew, the largest first, each on the fullest GPUs with room.
// Pods without GPUs stay where they are.
func (h *churn) packAnew() int {
	pods := h.gpuPods()
	slices.SortStableFunc(pods, func(a, b *runningPod) int {
		return cmp.Or(cmp.Compare(b.shape.pod.gpu(), a.shape.pod.gpu()), cmp.Compare(b.shape.pod.CPU, a.shape.pod.CPU))
	})
	empty := make([]*machine, len(h.machines))
	for i, m := range h.machines {
		empty[i] = newMachine(m.Node, m.rank)
		for _, p := range h.on[i] {
			if p.shape.pod.GPUs == 0 {
				empty[i].place(p.shape, nil)
			}
		}
	}
	used := 0
	for _, p := range pods {
		if m := fullest(empty, p.shape.pod); m != nil {
			before := m.unusedGPUs()
			m.place(p.shape, m.tightestGPUs(p.shape.pod))
			used += before - m.unusedGPUs()
		} else {
			used += p.shape.pod.GPUs
		}
	}
	return used
}

// fullest returns the machine on whose GPUs the pod leaves the least free, and among such machines the one with the most CPU left.
func fullest(machines []*machine, p *Pod) (best *machine) {
	least := packing.MilliGPU(math.MaxInt64)
	for _, m := range machines {
		if !m.fits(p) {
			continue
		}
		var left packing.MilliGPU
		for _, g := range m.tightestGPUs(p) {
			left += m.free[g] - p.Milli
		}
		if left < least || left == least && m.cpu > best.cpu {
			best, least = m, left
		}
	}
	return best
}

// scheduleAnew returns the number of GPUs in use when the scheduler places the same pods on the empty cluster, in random order.
func (h *churn) scheduleAnew(c ChurnConfig) (int, error) {
	fresh, err := newChurn(c)
	if err != nil {
		return 0, err
	}
	pods := slices.Clone(h.pods)
	fresh.random.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	used := 0
	for _, p := range pods {
		if !fresh.start(fresh.shapes[p.shape.index]) {
			used += p.shape.pod.GPUs
		}
	}
	return used + fresh.inUse(), nil
}

func gpusOf(plan packing.Plan) (gpus []int) {
	for _, picks := range plan {
		for _, pick := range picks {
			gpus = append(gpus, pick.Slice)
		}
	}
	return gpus
}
