package cluster

import (
	"fmt"
	"strconv"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// gsharePolicy applies the rules of gshare's scheduler without Kubernetes: the ranked fleet and policy D, with typical pods learned from
// the running ones.
type gsharePolicy struct {
	fleet   *packing.Fleet
	packer  packing.Packer
	nodes   []*packing.Node
	cpu     []packing.MilliCPU // of each node when empty
	pods    []packingShape     // by shape
	mix     packing.Mix
	total   packing.Capacity
	epoch   packing.Epoch
	version int64
	plan    packing.Plan                         // of the latest choice
	ranker  func(*packing.Demand) packing.Ranker // returns the ranker for given typical pods
}

// policyD is the ranker of gshare's scheduler.
func policyD(d *packing.Demand) packing.Ranker {
	return packing.Balance{Terms: packing.AllTerms, Demand: d}
}

// packingShape is a distinct pod request, converted to the types of package packing.
type packingShape struct {
	key   string
	pod   *packing.Pod
	shape packing.Shape
}

func newGsharePolicy(s *Simulation) *gsharePolicy {
	b := &gsharePolicy{packer: packing.Packer{Rules: packing.NewRules(packing.Slots)}, ranker: policyD}
	b.packer.Ranker = b.ranker(&packing.Demand{})
	b.fleet = packing.NewFleet(b.packer, len(s.machines))
	b.total.Models = map[string]packing.MilliGPU{}
	for i, m := range s.machines {
		n := m.packingNode()
		b.nodes, b.cpu = append(b.nodes, n), append(b.cpu, n.CPU)
		b.total.Add(packing.CapacityOf(n, n.CPU), 1)
		b.set(i)
	}
	for _, sh := range s.shapes {
		pod := sh.pod.packingPod()
		b.pods = append(b.pods, packingShape{key: strconv.Itoa(sh.index), pod: pod, shape: packing.ShapeOf(pod)})
	}
	return b
}

func (b *gsharePolicy) set(i int) {
	b.version++
	b.fleet.Set(i, b.nodes[i], b.version)
}

func (b *gsharePolicy) choose(s *shape) (int, []int, bool) {
	b.learn()
	p := &b.pods[s.index]
	best, ok := b.fleet.BestWithCapacity(p.key, p.pod)
	if !ok {
		return 0, nil, false
	}
	b.plan, _, _ = b.packer.Place(b.nodes[best.Node], p.pod)
	var gpus []int
	for _, picks := range b.plan {
		for _, pick := range picks {
			gpus = append(gpus, pick.Slice)
		}
	}
	return best.Node, gpus, true
}

// learn computes a new demand when the running pods have changed enough.
func (b *gsharePolicy) learn() {
	if !b.epoch.Expired(&b.mix, b.total) {
		return
	}
	b.epoch = packing.NewEpoch(&b.mix, b.total)
	b.packer.Ranker = b.ranker(packing.NewDemand(&b.mix, b.total))
	b.fleet.SetPacker(b.packer)
}

// placed updates the node and the demand for a placed pod. It changes the node in place, because only the simulation reads it.
func (b *gsharePolicy) placed(s *shape, i int, _ []int) {
	p, n := &b.pods[s.index], b.nodes[i]
	n.Take(packing.Slots, p.pod, b.plan)
	n.CPU -= p.pod.CPU
	n.RAM -= p.pod.RAM
	b.total.FreeCPU -= p.pod.CPU
	b.total.FreeGPU -= s.pod.gpu()
	if s.pod.GPUs > 0 {
		b.mix.Add(p.shape, 1)
	}
	b.set(i)
}

// packingNode returns the machine in the types of package packing. Its name begins with its rank in the order of nodes, because packing
// orders nodes of equal rank by name. The trace has no device memory, so every pod requests one byte.
func (m *machine) packingNode() *packing.Node {
	gpus := make([]packing.Slice, m.GPUs)
	for g := range gpus {
		id := fmt.Sprintf("%s-%d", m.Name, g)
		gpus[g] = packing.Slice{
			ID: packing.SliceID(id), Device: id, Model: m.Model, SMs: 100, Memory: share.MiB, Healthy: true, MaxShares: 64,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic},
		}
	}
	return packing.NewNode(fmt.Sprintf("%06d-%s", m.rank, m.Name), gpus, m.CPU, m.RAM)
}

// packingPod returns the pod in the types of package packing. A part of a GPU becomes SMs at full quota, because the trace has no quotas.
func (p *Pod) packingPod() *packing.Pod {
	pod := &packing.Pod{CPU: p.CPU, RAM: p.RAM}
	if p.GPUs == 0 {
		return pod
	}
	sm := share.PerMille(p.Milli)
	sh := share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: 1}
	pod.Request.Models = p.Models
	pod.Request.Containers = []share.Container{{VGPUs: p.GPUs, Share: sh}}
	return pod
}
