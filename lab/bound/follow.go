package bound

import "github.com/gshare-dev/gshare/vgpu/share"

// PackAccepting returns the thousandths of a GPU that one particular policy allocates that knows all pods beforehand and accepts what fits: no
// limit for such policies can be lower. The policy plans a packing of the pods that arrive until some time, together with small pods that arrive
// later, so that large pods find no room from then on. It then lets the pods arrive, and gives each the place that the packing reserves for a
// pod of its shape. A pod without such a place goes where it does the least harm, if there is any room for it. PackAccepting tries several
// times, and several sizes from which a pod counts as large, and returns the best result.
func (p *Problem) PackAccepting(tries int) int64 {
	counts, limit := p.countArrivals(), p.Solve().Milli
	best := int64(0)
	for _, large := range []int64{400, 800} {
		step := len(counts) - 1
		for step > 0 && p.demandOf(p.countUntil(counts[step], large)) > limit {
			step--
		}
		for at := max(0, step-1); at < min(len(counts), step+3); at++ {
			f := p.follow(p.planned(p.countUntil(counts[at], large), tries))
			best = max(best, f.allocated())
		}
	}
	return best
}

// countUntil returns how many pods of each shape to pack: of shapes with at least large thousandths of a GPU, or without GPUs, those that have
// arrived; of the others, all.
func (p *Problem) countUntil(arrived []int64, large int64) []int64 {
	most := make([]int64, len(p.shapes))
	for i := range p.shapes {
		s := &p.shapes[i]
		if most[i] = s.demand; s.gpus == 0 || s.gpu() >= large {
			most[i] = arrived[i]
		}
	}
	return most
}

// demandOf returns the thousandths of a GPU that the given number of pods of each shape request.
func (p *Problem) demandOf(count []int64) (milli int64) {
	for i, n := range count {
		milli += n * p.shapes[i].gpu()
	}
	return milli
}

// planned returns places for a selection of at most the given number of pods of each shape.
func (p *Problem) planned(most []int64, tries int) *packer {
	some := &Problem{types: p.types, sizes: p.sizes, capacity: p.capacity}
	var number []int // index of the shape in p
	for i, n := range most {
		if s := p.shapes[i]; n > 0 {
			s.demand, s.must = n, s.gpus == 0
			some.shapes, number = append(some.shapes, s), append(number, i)
		}
	}
	if len(some.shapes) == 0 {
		return Solution{problem: some}.newPacker()
	}
	plan := some.Solve().pack(tries)
	for i := range plan.bins {
		for j := range plan.bins[i].pods {
			pod := &plan.bins[i].pods[j]
			pod.shape = number[pod.shape]
		}
	}
	return plan
}

// follower lets pods arrive and follows a plan as closely as it can without refusing what fits.
type follower struct {
	*packer
	kept  []bin   // by node: resources that the plan keeps for pods to come
	slots [][]int // by shape: nodes on which the plan has a place for a pod
}

func (p *Problem) follow(plan *packer) *follower {
	f := &follower{packer: Solution{problem: p}.newPacker(), slots: make([][]int, len(p.shapes))}
	for i := range plan.bins {
		k := bin{free: make([]int64, len(plan.bins[i].free)), pods: plan.bins[i].pods}
		for _, pod := range k.pods {
			f.keep(&k, pod, 1)
			f.slots[pod.shape] = append(f.slots[pod.shape], i)
		}
		f.kept = append(f.kept, k)
	}
	for _, i := range p.arrivals {
		if !f.takeSlot(i) {
			f.takeRoom(i)
		}
	}
	return f
}

// keep adds the resources of the pod to those that are kept or, with sign -1, removes them.
func (f *follower) keep(k *bin, pod placed, sign int64) {
	s := &f.problem.shapes[pod.shape]
	k.cpu, k.memory = k.cpu+sign*s.cpu, k.memory+share.Bytes(sign)*s.bytes
	for _, g := range pod.devices {
		k.free[g] += sign * s.milli
	}
}

// takeSlot places a pod of shape i where the plan has a place for one, unless other pods have taken that place.
func (f *follower) takeSlot(i int) bool {
	for len(f.slots[i]) > 0 {
		at := f.slots[i][0]
		f.slots[i] = f.slots[i][1:]
		k := &f.kept[at]
		for j, pod := range k.pods {
			if pod.shape != i {
				continue
			}
			k.pods = append(append([]placed{}, k.pods[:j]...), k.pods[j+1:]...)
			f.keep(k, pod, -1)
			if f.hasRoom(&f.bins[at], pod) {
				f.place(&f.bins[at], i, pod.devices)
				return true
			}
			break
		}
	}
	return false
}

func (f *follower) hasRoom(b *bin, pod placed) bool {
	s := &f.problem.shapes[pod.shape]
	for _, g := range pod.devices {
		if b.free[g] < s.milli {
			return false
		}
	}
	return s.cpu <= b.cpu && s.bytes <= b.memory
}

// takeRoom places a pod for which the plan has no place. It chooses the node where the pod takes the least of what is kept for others; ties go to
// the node whose devices then have the least room left or, for a pod without GPUs, to the one with the most CPU. It refuses the pod if no node has
// room.
func (f *follower) takeRoom(i int) {
	s := &f.problem.shapes[i]
	best, least := placed{}, [2]int64{}
	at := -1
	for n := range f.bins {
		b, k := &f.bins[n], &f.kept[n]
		if !s.fits[b.node] || s.cpu > b.cpu || s.bytes > b.memory {
			continue
		}
		beside := bin{free: make([]int64, len(b.free))}
		for g := range b.free {
			beside.free[g] = b.free[g] - max(0, k.free[g])
		}
		devices, ok := beside.tightest(s)
		if !ok {
			if devices, ok = b.tightest(s); !ok {
				continue
			}
		}
		damage := max(0, s.cpu-(b.cpu-k.cpu)) // CPU that is kept for others; 32 cores count as one device
		damage /= 32
		left := int64(0)
		for _, g := range devices {
			damage += max(0, s.milli-beside.free[g])
			left += b.free[g] - s.milli
		}
		if s.gpus == 0 {
			left = k.cpu - b.cpu
		}
		if cost := [2]int64{damage, left}; at < 0 || cost[0] < least[0] || cost[0] == least[0] && cost[1] < least[1] {
			at, least, best = n, cost, placed{i, devices}
		}
	}
	if at >= 0 {
		f.place(&f.bins[at], i, best.devices)
	}
}
