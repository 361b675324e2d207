package cluster

import (
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// machine is a node with its free resources.
type machine struct {
	Node
	rank    int // position in the order of the nodes
	cpu     packing.MilliCPU
	ram     share.Bytes
	free    []packing.MilliGPU // by GPU
	left    packing.MilliGPU   // sum of free
	kinds   []int              // kinds of the pods that run here, see shape.kind
	version int                // number of pods placed so far
}

func newMachine(n Node, rank int) *machine {
	m := &machine{Node: n, rank: rank, cpu: n.CPU, ram: n.RAM, left: packing.MilliGPU(n.GPUs) * packing.WholeGPU}
	m.free = slices.Repeat([]packing.MilliGPU{packing.WholeGPU}, n.GPUs)
	return m
}

// shape is a distinct pod request, given by the first pod that has it.
type shape struct {
	pod   *Pod
	index int
	kind  int // 0: no GPUs, 1: a part of one, 1 + n: n whole ones; the policy clustering keeps kinds together
}

// shapesOf returns the distinct requests of the pods, and for each pod its request.
func shapesOf(pods []Pod) (shapes, list []*shape) {
	known := map[string]*shape{}
	for i := range pods {
		p := &pods[i]
		key := fmt.Sprint(p.CPU, p.RAM, p.GPUs, p.Milli, p.Models)
		s := known[key]
		if s == nil {
			s = &shape{pod: p, index: len(shapes), kind: kindOf(p)}
			known[key] = s
			shapes = append(shapes, s)
		}
		list = append(list, s)
	}
	return shapes, list
}

func kindOf(p *Pod) int {
	switch {
	case p.GPUs == 0:
		return 0
	case p.Milli < packing.WholeGPU:
		return 1
	}
	return 1 + p.GPUs
}

func (p *Pod) accepts(model string) bool {
	return p.GPUs == 0 || len(p.Models) == 0 || slices.Contains(p.Models, model)
}

// fits reports whether the machine has the resources for the pod.
func (m *machine) fits(p *Pod) bool {
	return p.CPU <= m.cpu && p.RAM <= m.ram && p.gpu() <= m.left && p.accepts(m.Model) && m.hasFree(p.GPUs, p.Milli)
}

// hasFree reports whether at least n GPUs of the machine have the given amount free.
func (m *machine) hasFree(n int, milli packing.MilliGPU) bool {
	for _, free := range m.free {
		if n <= 0 {
			break
		}
		if free >= milli {
			n--
		}
	}
	return n <= 0
}

// unusedGPUs returns the number of GPUs without a pod.
func (m *machine) unusedGPUs() int {
	n := 0
	for _, free := range m.free {
		if free == packing.WholeGPU {
			n++
		}
	}
	return n
}

// tightestGPUs returns the GPUs of the machine with the least free capacity that still suffices for the pod. Ties go to the first GPU.
func (m *machine) tightestGPUs(p *Pod) []int {
	picks := make([]int, 0, p.GPUs)
	for len(picks) < p.GPUs {
		best := -1
		for g, free := range m.free {
			if free >= p.Milli && !slices.Contains(picks, g) && (best < 0 || free < m.free[best]) {
				best = g
			}
		}
		picks = append(picks, best)
	}
	return picks
}

// place subtracts the pod's request from the free resources of the machine and of the given GPUs.
func (m *machine) place(s *shape, gpus []int) {
	m.version++
	m.cpu -= s.pod.CPU
	m.ram -= s.pod.RAM
	m.left -= s.pod.gpu()
	for _, g := range gpus {
		m.free[g] -= s.pod.Milli
	}
	if s.kind > 0 && !slices.Contains(m.kinds, s.kind) {
		m.kinds = append(m.kinds, s.kind)
	}
}
