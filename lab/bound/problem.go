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
