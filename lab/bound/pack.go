package bound

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// bin is a node with its free resources and the pods placed there.
type bin struct {
	node   int // index of the node type
	cpu    int64
	memory share.Bytes // not rounded, so that the packing is a possible one
	free   []int64     // by device
	pods   []placed
}

// placed is a pod of a shape on the given devices of its node.
type placed struct {
	shape   int
	devices []int
}

// packer turns a solution of the program into a placement: whole numbers for the program's fractions, nodes for its node types.
type packer struct {
	Solution
	bins  []bin
	left  []int64   // by shape: pods that are not placed
	owed  []float64 // by class and node type: CPU in cores that the placed pods would have taken at their class's mean, minus what they take
	often [][]int   // by node type: the columns that take one device, each repeated as often as the program uses it
}

// Pack returns the thousandths of a GPU that a placement of a selection of the pods allocates. It follows the solution of the program,
// fills the remaining room, and then tries the given number of times to improve a few nodes. The result shows how close to the limit a
// policy could come that knew all pods beforehand and were free to refuse any of them.
func (s Solution) Pack(tries int) int64 { return s.pack(tries).allocated() }

func (s Solution) pack(tries int) *packer {
	p := s.newPacker()
	p.placeColumns()
	p.placeRest()
	p.improve(tries, rand.New(rand.NewPCG(1, 1)))
	return p
}

func (s Solution) newPacker() *packer {
	p := &packer{Solution: s}
	for t, n := range s.problem.types {
		for range n.count {
			p.bins = append(p.bins, bin{node: t, cpu: n.cpu, memory: n.bytes, free: slices.Repeat([]int64{whole}, int(n.gpus))})
		}
	}
	p.often = make([][]int, len(s.problem.types))
	for j, c := range s.columns {
		if c.gpus == 1 {
			p.often[c.node] = append(p.often[c.node], slices.Repeat([]int{j}, int(math.Ceil(c.times)))...)
		}
	}
	p.owed = make([]float64, len(s.classes)*len(s.problem.types))
	for i := range s.problem.shapes {
		p.left = append(p.left, s.problem.shapes[i].demand)
	}
	return p
}

// placeColumns places the pods of the program's columns. Columns that take the most devices come first, and among these the ones with
// the most CPU per device, because the largest are hardest to place. Columns that the program also uses a fraction of a time are then
// tried once more, the largest fractions first.
func (p *packer) placeColumns() {
	var list []column
	for _, c := range p.columns {
		for range int(c.times + 1e-6) {
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(a, b column) int {
		return cmp.Or(cmp.Compare(b.gpus, a.gpus), cmp.Compare(p.cpuOf(b), p.cpuOf(a)))
	})
	for _, c := range list {
		p.placeColumn(c)
	}
	rest := slices.Clone(p.columns)
	slices.SortStableFunc(rest, func(a, b column) int { return cmp.Compare(fraction(b), fraction(a)) })
	for _, c := range rest {
		if fraction(c) > 0.3 {
			p.placeColumn(c)
		}
	}
}

func fraction(c column) float64 { return c.times - float64(int(c.times+1e-6)) }

func (p *packer) cpuOf(c column) float64 {
	sum := 0.0
	for _, x := range c.pods {
		sum += float64(x.count) * p.classes[x.class].cpu
	}
	return sum
}

// placeColumn places a column on the node of its type that has the most CPU left and enough unused devices, so that no node runs out of
// CPU early.
func (p *packer) placeColumn(c column) {
	best := -1
	for i := range p.bins {
		b := &p.bins[i]
		if b.node == c.node && b.unused() >= int(c.gpus) && (best < 0 || b.cpu > p.bins[best].cpu) {
			best = i
		}
	}
	if best >= 0 {
		p.placePods(c, &p.bins[best])
	}
}

// placePods places those of a column's pods that fit on unused devices of the node.
func (p *packer) placePods(c column, b *bin) {
	device := slices.Index(b.free, whole)
	for _, x := range c.pods {
		for range x.count {
			if !p.placeClass(b, x.class, device) {
				break
			}
		}
	}
}

func (b *bin) unused() int {
	n := 0
	for _, free := range b.free {
		if free == whole {
			n++
		}
	}
	return n
}

// placeClass places one pod of class k on the node. As long as the class's pods on this node type have taken less CPU than its
// mean, it chooses the shape with the most CPU, and otherwise the one with the least. A pod with a part of a device goes to the
// given device.
func (p *packer) placeClass(b *bin, k, device int) bool {
	owed := &p.owed[k*len(p.problem.types)+b.node]
	best := -1
	for _, i := range p.classes[k].shapes {
		s := &p.problem.shapes[i]
		if p.left[i] == 0 || s.cpu > b.cpu || s.bytes > b.memory {
			continue
		}
		if best < 0 || (s.cpu > p.problem.shapes[best].cpu) == (*owed >= 0) {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	s := &p.problem.shapes[best]
	devices, ok := []int{device}, true
	if s.gpus == 1 {
		ok = b.free[device] >= s.milli
	} else {
		devices, ok = b.tightest(s)
	}
	if ok {
		p.place(b, best, devices)
		*owed += p.classes[k].cpu - float64(s.cpu)/1000
	}
	return ok
}

// tightest returns the devices of the node with the least room that still suffices for the pod.
func (b *bin) tightest(s *shape) ([]int, bool) {
	var found []int
	for int64(len(found)) < s.gpus {
		best := -1
		for g, free := range b.free {
			if free >= s.milli && !slices.Contains(found, g) && (best < 0 || free < b.free[best]) {
				best = g
			}
		}
		if best < 0 {
			return nil, false
		}
		found = append(found, best)
	}
	return found, true
}

func (p *packer) place(b *bin, i int, devices []int) {
	s := &p.problem.shapes[i]
	b.cpu, b.memory = b.cpu-s.cpu, b.memory-s.bytes
	for _, g := range devices {
		b.free[g] -= s.milli
	}
	b.pods = append(b.pods, placed{i, devices})
	p.left[i]--
}

// placeRest places the pods that are left where they leave the least room. The largest come first, and among equal ones those with the
// least CPU.
func (p *packer) placeRest() {
	order := make([]int, 0, len(p.left))
	for i := range p.left {
		if p.problem.shapes[i].gpus > 0 {
			order = append(order, i)
		}
	}
	shapes := p.problem.shapes
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(shapes[b].gpu(), shapes[a].gpu()), cmp.Compare(shapes[a].cpu, shapes[b].cpu))
	})
	all := make([]int, len(p.bins))
	for i := range all {
		all[i] = i
	}
	for _, i := range order {
		for p.left[i] > 0 && p.placeTight(i, all) {
		}
	}
}

// placeTight places one pod of shape i on the given node on whose device it leaves the least room.
func (p *packer) placeTight(i int, at []int) bool {
	s := &p.problem.shapes[i]
	var best *bin
	var chosen []int
	room := int64(0)
	for _, j := range at {
		b := &p.bins[j]
		if !s.fits[b.node] || s.cpu > b.cpu || s.bytes > b.memory {
			continue
		}
		devices, ok := b.tightest(s)
		if !ok {
			continue
		}
		left := b.free[devices[0]]
		if best == nil || left < room || left == room && b.cpu < best.cpu {
			best, chosen, room = b, devices, left
		}
	}
	if best != nil {
		p.place(best, i, chosen)
	}
	return best != nil
}

// allocated returns the thousandths of a GPU that are in use.
func (p *packer) allocated() int64 {
	sum := p.problem.capacity
	for i := range p.bins {
		for _, free := range p.bins[i].free {
			sum -= free
		}
	}
	return sum
}
