package packing

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Part is one part of a model that is cut over several devices: where it is, and how much of the model's memory is there.
type Part struct {
	Pick
	Memory share.Bytes
}

// Cut divides a model between devices of the node, those with the most free memory first, each of which takes all that it has free until the
// model fits. So it has the fewest parts that the node allows (Dilu, section 3.3, principle 2b; D8). Each part is the requested share with its
// part of the memory, and is charged the SMs and the time of all (D9); the memory of the request is that of the model. Slices for which usable
// is false take no part.
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

// fragments returns, for each device of the node that admits a part of the model, its slice with the most free memory, as the part that would
// take all of it; the largest first.
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

// compareFreeMemory orders devices for the parts of one model by their free memory: the most first.
func compareFreeMemory(a, b share.Bytes) int { return cmp.Compare(b, a) }

// preferFreeMemory lets GPUs that several vGPUs of a container have for themselves, the parts of one model, be chosen by their free memory. Dilu's
// ranker has a rule for one fragment only, so for it nothing else counts (principle 2b). Of the others the rank comes first, as it knows who
// else needs the larger GPUs.
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

// freeMemory returns the memory of slice i that no share and no weights have.
func (n *Node) freeMemory(i int) share.Bytes { return n.Slices[i].Memory - n.Loads[i].memory }
