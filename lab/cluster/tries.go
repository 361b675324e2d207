package cluster

import (
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// tries are variants of gshare's policy that were tried to come closer to the limits of package bound. They are not part of the scheduler;
// the table "tries" of test/bench/RESULTS.md shows the result of each.
var tries = map[string]func(*Simulation) policy{
	"known":    func(s *Simulation) policy { return newKnownMix(s) },
	"bygpu":    func(s *Simulation) policy { return newTry(s, byGPU) },
	"worth":    func(s *Simulation) policy { return newTry(s, byWorth) },
	"reserve":  func(s *Simulation) policy { return newTry(s, reserve) },
	"coarse":   func(s *Simulation) policy { return newTry(s, coarse) },
	"together": func(s *Simulation) policy { return newTogether(s) },
	"ahead":    func(s *Simulation) policy { return newAhead(s) },
}

// Tries returns the names of the variants of gshare's policy that were tried.
func Tries() []string {
	return []string{"known", "bygpu", "worth", "reserve", "coarse", "together", "ahead"}
}

// tryPolicy is gshare's policy with another ranker, which is rebuilt from the typical pods and the running pods.
type tryPolicy struct {
	*gsharePolicy
	running []int // number of running pods, by shape
}

func newTry(s *Simulation, ranker func(*tryPolicy, *packing.Demand) packing.Ranker) policy {
	t := &tryPolicy{gsharePolicy: newGsharePolicy(s), running: make([]int, len(s.shapes))}
	t.ranker = func(d *packing.Demand) packing.Ranker { return ranker(t, d) }
	return t
}

func (t *tryPolicy) placed(s *shape, i int, gpus []int) {
	t.running[s.index]++
	t.gsharePolicy.placed(s, i, gpus)
}

// rankerFunc is a packing.Ranker.
type rankerFunc func(n *packing.Node, pod *packing.Pod, picks []packing.Choice) packing.Rank

// Rank calls the function.
func (f rankerFunc) Rank(n *packing.Node, pod *packing.Pod, picks []packing.Choice) packing.Rank {
	return f(n, pod, picks)
}

// milliGPU is the cost of a thousandth of a GPU in a Rank.
const milliGPU = 1_000_000

// newKnownMix tries how much it would help to know the typical pods from the start: those of the whole list, which then do not change.
func newKnownMix(s *Simulation) policy {
	b := newGsharePolicy(s)
	mix, total := packing.Mix{}, b.total
	for _, sh := range s.list {
		if sh.pod.GPUs > 0 {
			mix.Add(b.pods[sh.index].shape, 1)
		}
		total.FreeCPU -= sh.pod.CPU
	}
	known := packing.NewDemand(&mix, total)
	b.ranker = func(*packing.Demand) packing.Ranker { return policyD(known) }
	b.packer.Ranker = policyD(known)
	b.fleet.SetPacker(b.packer)
	return b
}

// byGPU tries to weigh typical pods by the GPUs that they request for fragmentation and stranding, instead of equally.
func byGPU(t *tryPolicy, d *packing.Demand) packing.Ranker {
	mix := packing.Mix{}
	for i, n := range t.running {
		if sh := t.pods[i].shape; n > 0 && sh.VGPUs > 0 {
			mix.Add(sh, n*sh.VGPUs*int(sh.Milli))
		}
	}
	parts := packing.Balance{Terms: packing.Terms{Fragmentation: true, Stranding: true}, Demand: packing.NewDemand(&mix, t.total)}
	rest := packing.Balance{Terms: packing.Terms{CPUShortage: true, Scarcity: true}, Demand: d}
	return rankerFunc(func(n *packing.Node, pod *packing.Pod, picks []packing.Choice) packing.Rank {
		return rest.Rank(n, pod, picks).Plus(parts.Rank(n, pod, picks).Cost())
	})
}

// Costs that reserve adds: for a part of a GPU on an unused device, and, per device, for an unused node whose devices would not all be taken.
const (
	costOfDevice = 100 * milliGPU
	costOfNode   = 20 * milliGPU
)

// reserve tries to keep unused devices for pods with whole GPUs, and unused nodes for pods with several.
func reserve(_ *tryPolicy, d *packing.Demand) packing.Ranker {
	policy := policyD(d)
	return rankerFunc(func(n *packing.Node, pod *packing.Pod, picks []packing.Choice) packing.Rank {
		var cost int64
		for _, p := range picks {
			if n.Loads[p.Slice].Empty() && pod.Request.Containers[p.Container].Share.RequestArea() < share.WholeArea {
				cost += costOfDevice
			}
		}
		if len(picks) > 0 && len(picks) < len(n.Slices) && isUnused(n) {
			cost += costOfNode * int64(len(n.Slices))
		}
		return policy.Rank(n, pod, picks).Plus(cost)
	})
}

func isUnused(n *packing.Node) bool {
	for i := range n.Loads {
		if !n.Loads[i].Empty() {
			return false
		}
	}
	return true
}

// step is about the difference in cost below which FGD's simulator treats nodes as equal.
const step = 40 * milliGPU

// coarse tries ties: it treats costs that differ little as equal, so that the tightest of such nodes is chosen.
func coarse(_ *tryPolicy, d *packing.Demand) packing.Ranker {
	policy := policyD(d)
	return rankerFunc(func(n *packing.Node, pod *packing.Pod, picks []packing.Choice) packing.Rank {
		rank := policy.Rank(n, pod, picks)
		beyond := rank.Cost() % step
		if beyond < 0 {
			beyond += step
		}
		return rank.Plus(-beyond)
	})
}
