package packing

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Part is one part of a model that is cut over several devices: the slice that holds it, and how much of the model's memory it takes there.
type Part struct {
	Pick
	Memory share.Bytes
}

// Cut divides a model between devices of the node. It takes the devices in order of free memory, largest first, and fills each one before
// it goes on to the next, until the whole model is placed. This gives the fewest parts that the node allows (Dilu, section 3.3, principle
// 2b; D8). The memory of the request is that of the whole model. Each part is the requested share with its part of that memory, and is
// charged the SMs and the quota of the whole request (D9). Slices for which usable returns false are left out. Cut returns false if the
// model does not fit.
func (r Rules) Cut(n *Node, model ShareRequest, usable func(slice int) bool) ([]Part, bool) {
	var parts []Part
	left := model.Share.Memory
	for _, f := range r.fragments(n, model, usable) {
		f.Memory = min(left, f.Memory)
		parts = append(parts, f)
		if left -= f.Memory; left == 0 {
			return parts, true
		}
	}
	return nil, false
}

// fragments returns the largest part of the model that each device of the node admits, on the slice of the device with the most free
// memory, ordered by size, largest first. Devices that admit no part are left out.
func (r Rules) fragments(n *Node, model ShareRequest, usable func(slice int) bool) []Part {
	var found []Part
	for i := range n.Slices {
		part := model
		part.Share.Memory = n.freeMemory(i) - n.Loads[i].MissingWeights(model.Tenant, model.Terms.Weights)
		if part.Share.Memory <= 0 || !usable(i) {
			continue
		}
		if class, refusal := r.AdmitOn(n, i, part); refusal == Admitted {
			found = append(found, Part{Pick{i, class}, part.Share.Memory})
		}
	}
	slices.SortFunc(found, func(a, b Part) int {
		return cmp.Or(compareFreeMemory(a.Memory, b.Memory), cmp.Compare(a.Slice, b.Slice))
	})
	seen := map[string]bool{}
	return slices.DeleteFunc(found, func(p Part) bool {
		device := n.Slices[p.Slice].Device
		taken := seen[device]
		seen[device] = true
		return taken
	})
}

// compareFreeMemory orders the devices for the parts of one model by free memory, largest first.
func compareFreeMemory(a, b share.Bytes) int { return cmp.Compare(b, a) }

// preferFreeMemory records the free memory of those options that are GPUs which the container gets for itself, so that they are chosen by
// it. The vGPUs of such a container are the parts of one model. Dilu places a cut model by free memory alone (principle 2b), so with its
// ranker the rank is cleared. With any other ranker the rank still comes first, because it knows which other pods need the larger GPUs.
func (p *Packer) preferFreeMemory(n *Node, sh share.Share, options []option) {
	_, isDilu := p.Ranker.(Complementary)
	for i := range options {
		o := &options[i]
		if n.Slices[o.Slice].Profile != "" || o.Class != share.Exclusive && !sh.IsWhole() {
			continue
		}
		if o.free = n.freeMemory(o.Slice); isDilu {
			o.rank = 0
		}
	}
}

// freeMemory returns the memory of slice i that neither shares nor weights occupy.
func (n *Node) freeMemory(i int) share.Bytes { return n.Slices[i].Memory - n.Loads[i].memory }
