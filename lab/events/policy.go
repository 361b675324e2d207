package events

import (
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Policy is a packing policy: how nodes are ranked, in which isolation class instances run, and which SMs they are guaranteed.
type Policy struct {
	Name      string
	ranker    func(*packing.Demand) packing.Ranker
	isolation share.Isolation
	book      func(Instance) (request, limit share.PerMille) // SMs guaranteed and allowed on each GPU
	learns    bool                                           // the ranker depends on what typically runs
	apart     bool                                           // the workers of a gang may be on several nodes
	inOrder   bool                                           // chooses the first node that fits, not the best
	cuts      bool                                           // divides models rather than use another GPU
}

// Policies returns Dilu's packing policy, those that the paper compares it with (5.1), and gshare's: SlotPacking, with the workers of a
// gang as separate pods.
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
