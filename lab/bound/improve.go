package bound

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// improve repeatedly empties a few nodes, fills them again in another order from all pods that are not placed, and keeps the result if it
// allocates no less: a large neighbourhood search. It makes the given number of tries.
func (p *packer) improve(tries int, r *rand.Rand) {
	idle := p.idleBins()
	for try := range tries {
		if try%1000 == 0 {
			idle = p.idleBins()
		}
		if len(idle) == 0 {
			return
		}
		at := []int{idle[r.IntN(len(idle))]}
		for range 1 + r.IntN(3) {
			if i := r.IntN(len(p.bins)); !slices.Contains(at, i) {
				at = append(at, i)
			}
		}
		p.refill(at, r)
	}
}

// idleBins returns the nodes that have a device with free room.
func (p *packer) idleBins() []int {
	var out []int
	for i := range p.bins {
		if slices.ContainsFunc(p.bins[i].free, func(free int64) bool { return free > 0 }) {
			out = append(out, i)
		}
	}
	return out
}

// refill empties and fills the given nodes, and restores them if they hold less than before.
func (p *packer) refill(at []int, r *rand.Rand) {
	before, used := make([]bin, len(at)), int64(0)
	for j, i := range at {
		before[j] = p.bins[i]
		before[j].free = slices.Clone(p.bins[i].free)
		used += p.used(&p.bins[i])
		p.empty(&p.bins[i])
	}
	if r.IntN(2) == 0 {
		p.followProgram(at, r)
	}
	for _, i := range p.randomOrder(r) {
		for p.left[i] > 0 && p.placeTight(i, at) {
		}
	}
	for _, i := range at {
		used -= p.used(&p.bins[i])
	}
	if used <= 0 {
		return
	}
	for j, i := range at {
		p.empty(&p.bins[i])
		p.bins[i] = before[j]
		for _, pod := range before[j].pods {
			if p.problem.shapes[pod.shape].gpus > 0 {
				p.left[pod.shape]--
			}
		}
	}
}

// followProgram fills each device of the given nodes with a random column of the program. The more the program uses a column, the more likely
// it is.
func (p *packer) followProgram(at []int, r *rand.Rand) {
	for _, i := range at {
		b := &p.bins[i]
		list := p.often[b.node]
		for range b.free {
			if len(list) > 0 && b.unused() > 0 {
				p.placePods(p.columns[list[r.IntN(len(list))]], b)
			}
		}
	}
}

func (p *packer) used(b *bin) int64 {
	sum := p.problem.types[b.node].gpus * whole
	for _, free := range b.free {
		sum -= free
	}
	return sum
}

// empty removes all pods with GPUs from the node.
func (p *packer) empty(b *bin) {
	t := p.problem.types[b.node]
	pods := b.pods
	*b = bin{node: b.node, cpu: t.cpu, memory: t.bytes, free: slices.Repeat([]int64{whole}, int(t.gpus))}
	for _, pod := range pods {
		s := &p.problem.shapes[pod.shape]
		if s.gpus > 0 {
			p.left[pod.shape]++
			continue
		}
		b.cpu, b.memory, b.pods = b.cpu-s.cpu, b.memory-s.bytes, append(b.pods, pod)
	}
}

// randomOrder returns the shapes that have pods left, from large to small except for a random factor.
func (p *packer) randomOrder(r *rand.Rand) []int {
	type ranked struct {
		shape int
		key   float64
	}
	var list []ranked
	cpu := r.Float64() * 20 // thousandths of a GPU that the sort key subtracts per core
	spread := r.Float64()
	for i, left := range p.left {
		if s := &p.problem.shapes[i]; left > 0 && s.gpus > 0 {
			list = append(list, ranked{i, (float64(s.gpu()) - cpu*float64(s.cpu)/1000) * (1 - spread + 2*spread*r.Float64())})
		}
	}
	slices.SortFunc(list, func(a, b ranked) int { return cmp.Compare(b.key, a.key) })
	out := make([]int, len(list))
	for j, x := range list {
		out[j] = x.shape
	}
	return out
}
