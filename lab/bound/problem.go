// Package bound computes upper limits on what any policy can allocate of a cluster's GPUs to a list of pods, and shows by a packing how
// close to such a limit one can come.
//
// The limit comes from a linear program over types of nodes and shapes of pods: each type has the CPU, the memory and the devices of all
// its nodes together, each device holds a combination of requests that fits it, and each shape has no more pods than have arrived. gonum
// solves the program in floating point. The reported limit does not depend on that: any prices yield a limit (weak duality), and Limit
// computes it from integer prices in integer arithmetic.
package bound

import (
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/gshare-dev/gshare/lab/cluster"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// whole is a whole device, in thousandths of a GPU.
const whole = int64(packing.WholeGPU)

// Problem holds the nodes of a cluster and the pods that request places there. Equal nodes and equal pods are grouped.
type Problem struct {
	types    []nodeType
	shapes   []shape
	sizes    []int64 // distinct requests per device, in thousandths, ascending
	capacity int64   // in thousandths of a GPU
	arrivals []int   // the shape of each pod, in the order of arrival
}

// nodeType is a kind of node and the number of such nodes.
type nodeType struct {
	cpu, memory int64       // in thousandths of a core and MiB
	bytes       share.Bytes // of memory, not rounded
	gpus        int64
	model       string
	count       int64
}

// shape is a distinct request and the number of pods that have it.
type shape struct {
	cpu, memory int64
	bytes       share.Bytes // of memory, not rounded
	gpus, milli int64       // milli is per device, in thousandths
	models      string
	demand      int64
	fits        []bool // by node type: whether an empty node can hold it
	must        bool   // whether all its pods must be accepted
}

func (s *shape) gpu() int64 { return s.gpus * s.milli }

// NewProblem returns the problem of the given nodes and of the pods, in the order of their arrival. Any pod may be refused. Limits count memory in MiB, rounded
// such that the limit can only rise; packings count bytes.
func NewProblem(nodes []cluster.Node, pods []cluster.Pod) *Problem {
	p := &Problem{}
	p.addNodes(nodes)
	p.addPods(pods)
	for i := range p.shapes {
		if s := &p.shapes[i]; s.gpus > 0 && !slices.Contains(p.sizes, s.milli) {
			p.sizes = append(p.sizes, s.milli)
		}
	}
	slices.Sort(p.sizes)
	return p
}

func (p *Problem) addNodes(nodes []cluster.Node) {
	known := map[nodeType]int{}
	for i := range nodes {
		n := &nodes[i]
		t := nodeType{cpu: int64(n.CPU), memory: int64((n.RAM + share.MiB - 1) / share.MiB), bytes: n.RAM, gpus: int64(n.GPUs), model: n.Model}
		at, ok := known[t]
		if !ok {
			at = len(p.types)
			known[t] = at
			p.types = append(p.types, t)
		}
		p.types[at].count++
		p.capacity += t.gpus * whole
	}
}

func (p *Problem) addPods(pods []cluster.Pod) {
	known := map[string]int{}
	for i := range pods {
		pod := &pods[i]
		key := fmt.Sprint(pod.CPU, pod.RAM, pod.GPUs, pod.Milli, pod.Models)
		at, ok := known[key]
		if !ok {
			at = len(p.shapes)
			known[key] = at
			p.shapes = append(p.shapes, p.shapeOf(pod))
		}
		p.shapes[at].demand++
		p.arrivals = append(p.arrivals, at)
	}
}

func (p *Problem) shapeOf(pod *cluster.Pod) shape {
	s := shape{cpu: int64(pod.CPU), memory: int64(pod.RAM / share.MiB), bytes: pod.RAM, gpus: int64(pod.GPUs), models: fmt.Sprint(pod.Models)}
	if pod.GPUs > 0 {
		s.milli = int64(pod.Milli)
	}
	for _, t := range p.types {
		accepts := pod.GPUs == 0 || len(pod.Models) == 0 || slices.Contains(pod.Models, t.model)
		s.fits = append(s.fits, accepts && s.cpu <= t.cpu && s.bytes <= t.bytes && s.gpus <= t.gpus)
	}
	return s
}

// Percent returns thousandths of a GPU as a percentage of all GPUs of the cluster.
func (p *Problem) Percent(milli int64) float64 { return 100 * float64(milli) / float64(p.capacity) }

// class is a set of shapes that the linear program treats as one: they take equal parts of a GPU on the same node types, and similar
// CPU. Classes keep the program small. Because Limit works with the shapes themselves, classes can only make the limit less tight, not
// wrong.
type class struct {
	gpus, milli int64
	size        int     // index into Problem.sizes
	cpu, memory float64 // means, in cores and GiB
	demand      float64
	fits        []bool
	value       float64 // in GPUs, including the reward if the pods must be accepted
	must        bool
	shapes      []int
}

// classesOf groups the shapes into classes. If fine is set, shapes whose CPU differs by a factor of two are in different classes.
func (p *Problem) classesOf(fine bool) []class {
	known := map[string]int{}
	var out []class
	for i := range p.shapes {
		s := &p.shapes[i]
		if s.gpus == 0 && !s.must {
			continue // contributes nothing to the allocation
		}
		width := 0
		if fine {
			width = bits.Len64(uint64(s.cpu / 1000))
		}
		key := fmt.Sprint(s.gpus, s.milli, s.fits, s.must, width)
		at, ok := known[key]
		if !ok {
			at = len(out)
			known[key] = at
			out = append(out, class{gpus: s.gpus, milli: s.milli, size: p.sizeIndex(s.milli), fits: s.fits, must: s.must})
		}
		out[at].add(i, s)
	}
	for i := range out {
		out[i].value = float64(out[i].gpus*out[i].milli) / float64(whole)
		if out[i].must {
			out[i].value += out[i].reward()
		}
	}
	return out
}

// reward returns the additional value that makes the program place pods that must be accepted before others: about the GPUs that others then
// cannot have. A larger reward makes the program hard to solve.
func (k *class) reward() float64 {
	if k.gpus == 0 {
		return 1 + k.cpu/4
	}
	return 0.4*float64(k.gpus) + k.cpu/16
}

func (k *class) add(i int, s *shape) {
	d := float64(s.demand)
	k.cpu = (k.cpu*k.demand + float64(s.cpu)/1000*d) / (k.demand + d)
	k.memory = (k.memory*k.demand + float64(s.memory)/1024*d) / (k.demand + d)
	k.demand += d
	k.shapes = append(k.shapes, i)
}

// unit is the number of steps of a price per thousandth of a GPU.
const unit = 1 << 20

// Prices are the dual variables of the program, in thousandths of a GPU times unit. They are integers so that a limit is exact.
type Prices struct {
	cpu, memory []int64   // by node type: price of a thousandth of a core, and of a MiB
	slot        [][]int64 // by node type and index into Problem.sizes: price of a part of a device of that size
}

// Limit returns an upper bound, in thousandths of a GPU, of what any selection and placement of the pods allocates. The selection must
// contain every pod that must be accepted; the limit may be negative if no placement has them all. It holds for any non-negative prices:
//
// Take an admissible placement. A pod of shape s on a node of type t contributes its GPU time g(s), and uses CPU, memory and parts of
// devices that are worth w(s,t) at the prices of t. The sum of g is therefore at most the worth of everything used plus the sum of the
// surpluses g(s) - w(s,t) of the pods. The CPU and memory used are worth no more than all there is; the parts used of a device are worth
// no more than the best combination of sizes that fills a device. The surplus of a pod is at most the best one over all types that can
// hold it, and counts as zero if it is negative and the pod may be left out.
func (p *Problem) Limit(prices *Prices) int64 {
	total := int64(0)
	for t, n := range p.types {
		total += n.count * (n.cpu*prices.cpu[t] + n.memory*prices.memory[t] + n.gpus*p.bestDevice(prices.slot[t]))
	}
	for i := range p.shapes {
		s := &p.shapes[i]
		surplus := p.surplus(s, prices)
		if !s.must || surplus == math.MinInt64 {
			surplus = max(surplus, 0)
		}
		total += s.demand * surplus
	}
	return min(total/unit, p.capacity) // rounds down, because an allocation is a whole number
}

// surplus returns the highest difference between what a pod contributes and the worth of what it uses, over the node types that can
// hold it. It returns the lowest integer if there are none.
func (p *Problem) surplus(s *shape, prices *Prices) int64 {
	best := int64(math.MinInt64)
	for t, fits := range s.fits {
		if !fits {
			continue
		}
		worth := s.cpu*prices.cpu[t] + s.memory*prices.memory[t]
		if s.gpus > 0 {
			worth += s.gpus * prices.slot[t][p.sizeIndex(s.milli)]
		}
		best = max(best, s.gpu()*unit-worth)
	}
	return best
}

func (p *Problem) sizeIndex(milli int64) int {
	for i, size := range p.sizes {
		if size == milli {
			return i
		}
	}
	return -1
}

// bestDevice returns the worth of the most valuable combination of sizes that fits a device: an unbounded knapsack.
func (p *Problem) bestDevice(worth []int64) int64 {
	var best [whole + 1]int64
	for room := int64(1); room <= whole; room++ {
		best[room] = best[room-1]
		for i, size := range p.sizes {
			if size <= room {
				best[room] = max(best[room], best[room-size]+worth[i])
			}
		}
	}
	return best[whole]
}

// Solution is the result of the program: the best prices found, and how the program uses the devices.
type Solution struct {
	problem *Problem
	classes []class
	columns []column
	Prices  *Prices
	Milli   int64   // the limit that the prices prove, in thousandths of a GPU
	Value   float64 // of the program, in GPUs and without proof; includes the rewards, if there are any
}

const (
	maxRounds   = 200
	maxVariants = 4   // combinations added per round and node type
	maxClasses  = 130 // above it, the program merges shapes with different CPU into one class
)

// Solve finds prices that prove a low limit.
func (p *Problem) Solve() Solution {
	classes := p.classesOf(true)
	if len(classes) > maxClasses {
		classes = p.classesOf(false)
	}
	m := newProgram(p, classes)
	best := Solution{problem: p, classes: classes, Milli: math.MaxInt64}
	for range maxRounds {
		m.solve()
		prices := m.prices()
		if limit := p.Limit(prices); limit < best.Milli {
			best.Milli, best.Prices = limit, prices
		}
		if !m.addCombinations() {
			break
		}
	}
	best.columns, best.Value = m.columns, m.value
	return best
}

// prices rounds the dual variables to integers. The price of a part of a device is the most that any class gains by it.
func (m *program) prices() *Prices {
	out := &Prices{}
	for t := range m.types {
		out.cpu = append(out.cpu, rounded(m.dual[m.cpuRow(t)], 10))
		out.memory = append(out.memory, rounded(m.dual[m.memoryRow(t)]*1000/1024, 10))
		row := make([]int64, len(m.sizes))
		for i, g := range m.gains(t) {
			row[i] = rounded(g.worth*1000, 100*float64(whole))
		}
		out.slot = append(out.slot, row)
	}
	return out
}

// rounded converts a price in thousandths of a GPU. It cuts prices above the worth of any resource, so that no sum over the pods or the
// nodes of a hundred openb clusters overflows.
func rounded(price, most float64) int64 { return int64(math.Round(max(0, min(price, most)) * unit)) }

// gain is the class that gains the most from a part of a device, and its gain.
type gain struct {
	class int
	worth float64
}

// gains returns, for each size, the class that gains the most from a part of this size on node type t, at the present dual variables.
func (m *program) gains(t int) []gain {
	out := make([]gain, len(m.sizes))
	for k := range m.classes {
		c := &m.classes[k]
		if !c.fits[t] || c.gpus == 0 {
			continue
		}
		worth := c.value - c.cpu*m.price(m.cpuRow(t)) - c.memory*m.price(m.memoryRow(t)) - m.price(k)
		if worth /= float64(c.gpus); worth > out[c.size].worth {
			out[c.size] = gain{k, worth}
		}
	}
	return out
}

func (m *program) price(row int) float64 { return max(0, m.dual[row]) }

// addCombinations adds, for each node type, the combination of pods on one device that gains the most, if it gains more than the device
// costs; then the best combination without the size of the first one's largest pod, and so on. It reports whether it has added any.
func (m *program) addCombinations() bool {
	found := false
	for t := range m.types {
		gains := m.gains(t)
		for i := range gains {
			if m.classes[gains[i].class].gpus > 1 {
				gains[i].worth = 0 // already has a column of its own
			}
		}
		for range maxVariants {
			worth, pods := m.combine(gains)
			if worth <= m.price(m.deviceRow(t))+1e-7 {
				break
			}
			m.columns = append(m.columns, column{node: t, gpus: 1, pods: pods})
			found = true
			gains[m.classes[pods[0].class].size].worth = 0
		}
	}
	return found
}

// combine returns the combination of pods that fits a device and gains the most.
func (m *program) combine(gains []gain) (float64, []counted) {
	var best [whole + 1]float64
	var last [whole + 1]int // 1 + the size that was added last, 0 if none
	for room := int64(1); room <= whole; room++ {
		best[room] = best[room-1]
		for i, size := range m.sizes {
			if size <= room && best[room-size]+gains[i].worth > best[room]+1e-12 {
				best[room], last[room] = best[room-size]+gains[i].worth, 1+i
			}
		}
	}
	var pods []counted
	for room := whole; room > 0; {
		if last[room] == 0 {
			room--
			continue
		}
		i := last[room] - 1
		if n := len(pods); n > 0 && pods[n-1].class == gains[i].class {
			pods[n-1].count++
		} else {
			pods = append(pods, counted{gains[i].class, 1})
		}
		room -= m.sizes[i]
	}
	return best[whole], pods
}
