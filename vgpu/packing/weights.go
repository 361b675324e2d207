package packing

import "github.com/gshare-dev/gshare/vgpu/share"

// heldWeights are the weights of one model that shares of one namespace use on a slice, and the memory that they count for there.
type heldWeights struct {
	tenant string
	digest share.Digest
	memory share.Bytes
}

// weightsOf returns how much memory the weights of a namespace count for on the slice: the largest size that a share there declares, or 0
// if none uses them. The copy may be larger than a share declares; the node charges that share for what it maps beyond its own declaration.
func (l *Load) weightsOf(tenant string, digest share.Digest) share.Bytes {
	for i := len(l.weights) - 1; i >= 0; i-- { // a later entry has the larger size
		if w := &l.weights[i]; w.digest == digest && w.tenant == tenant {
			return w.memory
		}
	}
	return 0
}

// MissingWeights returns the memory that the weights of a pod in a namespace would add to what is already counted for them on the slice.
func (l *Load) MissingWeights(tenant string, weights []share.Weights) share.Bytes {
	var missing share.Bytes
	for _, w := range weights {
		missing += max(0, w.Memory-l.weightsOf(tenant, w.Digest))
	}
	return missing
}

// addWeights counts the weights of a share. It only appends, so that an earlier copy of the load keeps its own contents (search.choose).
func (l *Load) addWeights(tenant string, weights []share.Weights) {
	for _, w := range weights {
		if held := l.weightsOf(tenant, w.Digest); w.Memory > held {
			l.weights = append(l.weights, heldWeights{tenant, w.Digest, w.Memory})
			l.memory += w.Memory - held
		}
	}
}

// A difference in the weights to be loaded always outweighs any difference in the ranker's cost: one step costs more than policy D ever
// charges for all the SM-time of 64 slices.
const (
	loadingSteps = 64
	costOfStep   = 1 << 36
)

// loadingCost returns the cost of the weights that the chosen slices do not hold yet, as a fraction of all weights of the pod. It makes a
// pod go where most of its weights are, whatever else speaks for another slice or node.
func loadingCost(n *Node, pod *Pod, picks []Choice) int64 {
	all := share.MemoryOf(pod.Request.Weights)
	if all == 0 || len(picks) == 0 {
		return 0
	}
	var missing, whole int64 // MiB
	for i, p := range picks {
		if !hasPickOn(picks[:i], p.Slice) {
			missing += mebibytes(n.Loads[p.Slice].MissingWeights(pod.Tenant, pod.Request.Weights))
			whole += mebibytes(all)
		}
	}
	return (missing*loadingSteps + whole - 1) / whole * costOfStep
}

// mebibytes converts to MiB and rounds up, so that no fraction of the weights counts as zero.
func mebibytes(b share.Bytes) int64 { return int64((b + share.MiB - 1) / share.MiB) }

// memoryOn returns the memory that the pod's shares picked on a slice add to it, including the weights that the slice does not hold yet.
func memoryOn(n *Node, pod *Pod, picks []Choice, slice int) share.Bytes {
	memory := n.Loads[slice].MissingWeights(pod.Tenant, pod.Request.Weights)
	for _, p := range picks {
		if p.Slice == slice {
			memory += pod.Request.Containers[p.Container].Share.Memory
		}
	}
	return memory
}
