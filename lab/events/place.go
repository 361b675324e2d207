package events

import (
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// start places all workers of the instance or none (D4), and reports whether it did.
func (c *cluster) start(in Instance) bool {
	c.updateDemand()
	if in.GPUs > 1 {
		c.gang = in.Name
	}
	ok := c.placeAll(in)
	c.gang = ""
	c.running[in.Name] = in
	c.requested.add(in, 1)
	if !ok {
		c.stop(in.Name)
		return false
	}
	if in.GPUs > 1 {
		c.reopenGPUs(in.Name)
	}
	return true
}

// reopenGPUs reopens those GPUs of a gang that were closed to its other workers while it was being placed.
func (c *cluster) reopenGPUs(gang string) {
	for _, i := range c.where[gang] {
		c.rebuildNode(i)
	}
}

func (c *cluster) placeAll(in Instance) bool {
	for _, pod := range c.policy.podsFor(in) {
		b, ok := c.place(pod)
		if c.policy.cuts && in.LLM && in.GPUs == 1 && (!ok || c.startsGPU(b)) {
			if stages, found := c.partitionModel(in, !ok); found {
				b, ok = stages, true
			}
		}
		if !ok {
			return false
		}
		c.book(in.Name, b)
	}
	return true
}

// place chooses the best node for one pod, and its GPUs there. It returns false if no node admits the pod.
func (c *cluster) place(pod *packing.Pod) (booking, bool) {
	if c.policy.inOrder {
		return c.placeInOrder(pod)
	}
	want := pod.Request.Containers[0]
	best := c.fleet.Best(fmt.Sprint(want.VGPUs, want.Share.SMRequest, want.Share.SMLimit, want.Share.Memory), pod, 1, nil)
	if len(best) == 0 {
		return booking{}, false
	}
	return c.placeOn(best[0].Node, pod)
}

func (c *cluster) placeInOrder(pod *packing.Pod) (booking, bool) {
	for i := range c.booked {
		if b, ok := c.placeOn(i, pod); ok {
			return b, true
		}
	}
	return booking{}, false
}

func (c *cluster) placeOn(node int, pod *packing.Pod) (booking, bool) {
	plan, _, refusal := c.packer.Place(c.fleet.Node(node), pod)
	return booking{node: node, pod: pod, plan: plan}, refusal == packing.Admitted
}

func (c *cluster) startsGPU(b booking) bool {
	loads := c.fleet.Node(b.node).Loads
	return slices.ContainsFunc(b.plan[0], func(p packing.Pick) bool { return loads[p.Slice].Empty() })
}

// Policy is a packing policy: how nodes are ranked, in which isolation class instances run, and which SMs they are guaranteed.
type Policy struct {
	Name      string
	ranker    func(*packing.Demand) packing.Ranker
	isolation share.Isolation
	book      func(Instance) (request, limit share.PerMille) // SMs guaranteed and allowed on each GPU
	learns    bool                                           // the ranker depends on what typically runs
	apart     bool                                           // the workers of a gang may be on different nodes
	inOrder   bool                                           // chooses the first node that fits, not the best
	cuts      bool                                           // divides models rather than use another GPU
}

// Policies returns Dilu's packing policy, the policies with which the paper compares it (5.1), and gshare's: SlotPacking, with the
// workers of a gang as separate pods.
func Policies() []Policy {
	return []Policy{
		{Name: "exclusive", ranker: bestSM, isolation: share.Exclusive, book: whole},
		{Name: "limit", ranker: bestSM, isolation: share.MPS, book: limits},
		{Name: "request", ranker: bestSM, isolation: share.MPS, book: requests},
		{Name: "firstfit", ranker: byIndex, isolation: share.Elastic, book: both, inOrder: true},
		{Name: "complementary", ranker: dilu, isolation: share.Elastic, book: both, cuts: true},
		{Name: "gshare", ranker: balance, isolation: share.Elastic, book: both, cuts: true, apart: true, learns: true},
	}
}

// bestSM returns a ranker by SMs alone, as in INFless; memory only has to fit.
func bestSM(*packing.Demand) packing.Ranker { return packing.Complementary{Alpha: share.Whole} }

func byIndex(*packing.Demand) packing.Ranker { return firstFit{} }

func dilu(*packing.Demand) packing.Ranker { return packing.DiluWeights }

func balance(d *packing.Demand) packing.Ranker {
	return packing.Balance{Terms: packing.AllTerms, Demand: d}
}

func whole(Instance) (request, limit share.PerMille)       { return share.Whole, share.Whole }
func limits(in Instance) (request, limit share.PerMille)   { return in.Limit, in.Limit }
func requests(in Instance) (request, limit share.PerMille) { return in.Request, in.Request }
func both(in Instance) (request, limit share.PerMille)     { return in.Request, in.Limit }

// firstFit is a ranker that prefers the GPU with the lowest index on a node.
type firstFit struct{}

func (firstFit) Rank(_ *packing.Node, _ *packing.Pod, picks []packing.Choice) packing.Rank {
	return packing.Rank(picks[0].Slice)
}

// podsFor returns the instance as one pod, whose vGPUs stay on one node (D11), or as one pod for each worker if the policy allows workers
// on several nodes.
func (p Policy) podsFor(in Instance) []*packing.Pod {
	request, limit := p.book(in)
	sh := share.Share{SMRequest: request, SMLimit: limit, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: in.Memory}
	if !p.apart {
		return []*packing.Pod{p.pod(share.Container{VGPUs: in.GPUs, Share: sh})}
	}
	var out []*packing.Pod
	for range in.GPUs {
		out = append(out, p.pod(share.Container{VGPUs: 1, Share: sh}))
	}
	return out
}

func (p Policy) pod(containers ...share.Container) *packing.Pod {
	terms := share.Terms{Isolation: p.isolation, Slice: share.WholeGPU, Enforcement: share.Strict, Priority: share.BestEffort}
	return &packing.Pod{Request: share.Request{Terms: terms, Containers: containers}}
}
