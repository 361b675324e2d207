package packing

import (
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// gpu returns a healthy whole GPU that serves every class, and is large enough for whatever the tests request.
func gpu(id, model string) Slice {
	return Slice{
		ID: SliceID(id), Device: id, Model: model, SMs: 100, Memory: 80 << 30, Healthy: true, MaxShares: 64,
		Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic},
	}
}

// gpuNode returns a node with the given number of identical GPUs.
func gpuNode(name string, gpus int) *Node {
	slices := make([]Slice, gpus)
	for i := range slices {
		slices[i] = gpu(fmt.Sprintf("%s/%d", name, i), "A100")
	}
	return NewNode(name, slices, MilliCPU(gpus)*16000, share.Bytes(gpus)*128<<30)
}

// instanceOf returns a MIG instance of the device.
func instanceOf(id, device, profile string) Slice {
	s := gpu(id, "A100")
	s.Device, s.Profile = device, profile
	s.Memory = 10 << 30
	return s
}

// fixed returns a share in percent, with 1 GiB, whose limits equal its requests.
func fixed(sm, quota share.PerMille) share.Share {
	return share.Share{SMRequest: 10 * sm, SMLimit: 10 * sm, QuotaRequest: 10 * quota, QuotaLimit: 10 * quota, Memory: 1 << 30}
}

// elastic is a share with all of the time and more SMs than it asks for, in percent.
func elastic(sm, limit share.PerMille) share.Share {
	s := fixed(sm, 100)
	s.SMLimit = 10 * limit
	return s
}

func withMemory(s share.Share, gib share.Bytes) share.Share {
	s.Memory = gib << 30
	return s
}

// podOf returns a pod of tenant "a" with one container for each share.
func podOf(shares ...share.Share) *Pod {
	p := &Pod{Tenant: "a", CPU: 1000, RAM: 1 << 30}
	for i, s := range shares {
		p.Request.Containers = append(p.Request.Containers, share.Container{Name: fmt.Sprint("c", i), VGPUs: 1, Share: s})
	}
	return p
}

// wide returns a pod with one container that has the given number of vGPUs.
func wide(vgpus int, s share.Share) *Pod {
	p := podOf(s)
	p.Request.Containers[0].VGPUs = vgpus
	return p
}

// runs returns a share of tenant "a" on a slice of class mps that is packed by slots.
func runs(s share.Share) Resident {
	return Resident{Tenant: "a", Model: Slots, Class: share.MPS, Share: s}
}

func loadOf(residents ...Resident) *Load {
	var l Load
	for _, r := range residents {
		l.Add(r)
	}
	return &l
}

// bestFit returns a packer without any of policy D's terms.
// mixing sets whether pods of several namespaces may share the slices of the node, and returns the node.
func mixing(n *Node, mix bool) *Node {
	for i := range n.Slices {
		n.Slices[i].MixTenants = mix
	}
	return n
}

func bestFit(m Model) Packer {
	return Packer{Rules: NewRules(m), Ranker: Balance{Demand: &Demand{}}}
}

// withSidecar adds a container with one vGPU and all of the time.
func withSidecar(p *Pod, sm share.PerMille) *Pod {
	p.Request.Containers = append(p.Request.Containers, podOf(fixed(sm, 100)).Request.Containers...)
	return p
}
