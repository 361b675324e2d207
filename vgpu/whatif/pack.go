package whatif

import (
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// precision is the resolution of the search for the fewest GPUs: the search ends when its bounds differ by one GPU, or by 1/precision of
// the upper one.
const precision = 100

// countNeeded adds to the row the GPUs and nodes that all pods of the group need: those in use when the pods are packed onto the fewest GPUs
// that hold every pod. It searches for that number by bisection instead of counting GPUs in use on the whole group, because with GPUs to
// spare the scheduler spreads pods to keep GPUs useful for later ones.
func (g *group) countNeeded(r *Row) {
	best := g.pack(r.GPUs)
	if len(best.unplaced) > 0 {
		best.addTo(r)
		return
	}
	few, enough := 0, r.GPUs
	for enough-few > max(1, enough/precision) {
		gpus := (few + enough) / 2
		if p := g.pack(gpus); len(p.unplaced) > 0 {
			few = gpus
		} else {
			best, enough = p, gpus
		}
	}
	best.addTo(r)
}

// repacking is the state of placing a group's pods again, on the first nodes of the group.
type repacking struct {
	packer   packing.Packer
	fleet    *packing.Fleet
	nodes    []*packing.Node
	version  int64
	unplaced []Pod
	reasons  []string // why each of the unplaced pods does not fit
}

// pack places the pods one by one, as the scheduler would, on the first GPUs of the group.
func (g *group) pack(gpus int) *repacking {
	nodes := g.firstNodes(gpus)
	p := &repacking{packer: packing.Packer{Rules: packing.NewRules(packing.Slots), Ranker: packing.Balance{Terms: packing.AllTerms, Demand: g.demand(nodes)}}}
	p.fleet = packing.NewFleet(p.packer, len(nodes))
	p.nodes = make([]*packing.Node, len(nodes))
	for i, n := range nodes {
		p.set(i, n)
	}
	for i := range g.pods {
		if !p.place(&g.pods[i].Pod) {
			p.unplaced, p.reasons = append(p.unplaced, g.pods[i]), append(p.reasons, p.reasonAgainst(&g.pods[i].Pod))
		}
	}
	return p
}

// firstNodes returns empty copies of the group's first nodes that together have the given number of GPUs, or all nodes if there are too few.
// The last copy may have fewer GPUs than its node.
func (g *group) firstNodes(gpus int) (nodes []*packing.Node) {
	for _, n := range g.nodes {
		if gpus <= 0 {
			break
		}
		slices := n.Slices
		for countDevices(slices, nil) > gpus {
			slices = slices[:len(slices)-1]
		}
		gpus -= countDevices(slices, nil)
		nodes = append(nodes, packing.NewNode(n.Name, slices, n.CPU, n.RAM))
	}
	return nodes
}

// demand returns the demand for GPUs that the scheduler would have learned from these pods.
func (g *group) demand(nodes []*packing.Node) *packing.Demand {
	var mix packing.Mix
	for i := range g.pods {
		mix.Add(packing.ShapeOf(&g.pods[i].Pod), 1)
	}
	total := packing.Capacity{Models: map[string]packing.MilliGPU{}}
	for _, n := range nodes {
		total.Add(packing.CapacityOf(n, n.CPU), 1)
	}
	return packing.NewDemand(&mix, total)
}

func (p *repacking) place(pod *packing.Pod) bool {
	best := p.fleet.Best(fmt.Sprint(*pod), pod, 1, func(i int) bool { return p.hasCapacity(i, pod) })
	if len(best) == 0 {
		return false
	}
	n := p.nodes[best[0].Node].Clone()
	plan, _, _ := p.packer.Place(n, pod)
	n.Take(p.packer.Rules.Model, pod, plan)
	n.CPU -= pod.CPU
	n.RAM -= pod.RAM
	p.set(best[0].Node, n)
	return true
}

func (p *repacking) hasCapacity(i int, pod *packing.Pod) bool {
	return p.nodes[i].CPU >= pod.CPU && p.nodes[i].RAM >= pod.RAM
}

// reasonAgainst returns why the pod fits none of the nodes: of the nodes' refusals, the one from the latest check, which came closest to
// admitting the pod.
func (p *repacking) reasonAgainst(pod *packing.Pod) string {
	why := packing.Admitted
	for i, n := range p.nodes {
		if p.hasCapacity(i, pod) {
			_, _, refusal := p.packer.Place(n, pod)
			why = max(why, refusal)
		}
	}
	if why == packing.Admitted {
		return "no node has the CPU and the memory"
	}
	return why.String()
}

func (p *repacking) set(i int, n *packing.Node) {
	p.nodes[i] = n
	p.version++
	p.fleet.Set(i, n, p.version)
}

// addTo adds to the row the GPUs and nodes in use. Pods that could not be placed are listed, and the GPUs that they hold today count as needed.
func (p *repacking) addTo(r *Row) {
	var held packing.MilliGPU
	for i, pod := range p.unplaced {
		r.Unplaced = append(r.Unplaced, pod.Name)
		r.addReason(pod.Name, p.reasons[i])
		held += pod.Held
	}
	for _, n := range p.nodes {
		if gpus := countDevices(n.Slices, n.Loads); gpus > 0 {
			r.NeededGPUs += gpus
			r.NeededNodes++
		}
	}
	r.NeededGPUs += ceilGPUs(held)
}
