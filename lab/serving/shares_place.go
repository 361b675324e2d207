package serving

import (
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// podOf returns a pod that requests the share, for package packing to place.
func (w *shareSimulation) podOf(s share.Share) *packing.Pod {
	terms := share.Terms{Isolation: share.MPS, Slice: share.WholeGPU, Enforcement: share.Strict, Priority: share.SLO}
	if w.policy.elastic {
		terms.Isolation = share.Elastic
	}
	return &packing.Pod{Request: share.Request{Terms: terms, Containers: []share.Container{{VGPUs: 1, Share: s}}}}
}

// occupiedNode returns the GPUs as a node of package packing on which all instances except the given one reserve their shares.
func (w *shareSimulation) occupiedNode(without *instance) *packing.Node {
	if without == nil && !w.changed {
		return w.node
	}
	node := packing.NewNode("node", w.slices, 0, 0)
	for at, g := range w.gpus {
		for _, i := range g.residents {
			if i == without {
				continue
			}
			pod := w.podOf(i.reservation())
			node.Take(w.packer.Rules.Model, pod, packing.Plan{{{Slice: at, Class: pod.Request.Terms.Isolation}}})
		}
	}
	if without == nil {
		w.node, w.changed = node, false
	}
	return node
}

// reservation returns the share that the instance reserves on its GPU.
func (i *instance) reservation() share.Share {
	s := i.configuration.Share
	s.SMRequest = i.reservedSMs()
	return s
}

// findGPU returns the index of a GPU with capacity for a share. It evicts idle instances that reserve no SMs, the least recently used
// first, until the share fits, and returns false if it never does.
func (w *shareSimulation) findGPU(s share.Share) (gpu int, ok bool) {
	for {
		plan, _, refusal := w.packer.Place(w.occupiedNode(nil), w.podOf(s))
		if refusal == packing.Admitted {
			return plan[0][0].Slice, true
		}
		if !w.evictLeastRecentlyUsed() {
			return 0, false
		}
	}
}

// evictLeastRecentlyUsed moves the least recently used idle instance without reserved SMs to host memory. It reports whether there was
// one.
func (w *shareSimulation) evictLeastRecentlyUsed() bool {
	var victim *instance
	for _, g := range w.gpus {
		for _, i := range g.residents {
			if i.residency == scaling.Shared && i.ready && i.batch == nil && (victim == nil || i.lastUsed < victim.lastUsed) {
				victim = i
			}
		}
	}
	if victim == nil {
		return false
	}
	victim.function.moveToHost(victim)
	return true
}

// canReserveSMs reports whether an instance that holds only memory can reserve SMs again on its GPU.
func (w *shareSimulation) canReserveSMs(i *instance) bool {
	pod := w.podOf(i.configuration.Share)
	plan := packing.Plan{{{Slice: i.at, Class: pod.Request.Terms.Isolation}}}
	return w.packer.Admits(w.occupiedNode(i), pod, plan)
}
