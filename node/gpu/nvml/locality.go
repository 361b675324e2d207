package nvml

import (
	"math/bits"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/node/gpu"
)

// locality is where in the machine a GPU is, as in gpu.Device.
type locality struct {
	numa   *int
	nvlink int
}

// set adds the locality to the properties of a GPU. A GPU in MIG mode has none: its instances cannot reach other GPUs.
func (l locality) set(d *gpu.Device) {
	if !d.MIG {
		d.NUMA, d.NVLink = l.numa, l.nvlink
	}
}

// localitiesOf returns where the GPUs are; handles of lost GPUs are nil. What the driver does not tell stays unknown: only the choice among
// equally good GPUs depends on it.
func localitiesOf(handles []nvml.Device) []locality {
	found := make([]locality, len(handles))
	for i, set := range linkedSets(len(handles), func(i, j int) bool { return joined(handles[i], handles[j]) }) {
		found[i].nvlink = set
	}
	for i, handle := range handles {
		if handle != nil {
			found[i].numa = numaNode(handle)
		}
	}
	return found
}

// maxNUMANodes is the number of NUMA nodes that the driver is asked about: those that Linux can have.
const maxNUMANodes = 1024

// numaNode returns the NUMA node whose memory is nearest to a GPU, or nil if there is no such node or there are several.
func numaNode(handle nvml.Device) *int {
	mask, r := handle.GetMemoryAffinity(maxNUMANodes, nvml.AFFINITY_SCOPE_NODE)
	if r != nvml.SUCCESS {
		return nil
	}
	var node *int
	for i, word := range mask {
		for ; word != 0; word &= word - 1 {
			if node != nil {
				return nil
			}
			node = new(i*bits.UintSize + bits.TrailingZeros(word))
		}
	}
	return node
}

// joined reports whether two GPUs can reach each other's memory by NVLink, directly or through switches, in both directions.
func joined(a, b nvml.Device) bool {
	if a == nil || b == nil {
		return false
	}
	there, r := a.GetP2PStatus(b, nvml.P2P_CAPS_INDEX_NVLINK)
	if r != nvml.SUCCESS || there != nvml.P2P_STATUS_OK {
		return false
	}
	back, r := b.GetP2PStatus(a, nvml.P2P_CAPS_INDEX_NVLINK)
	return r == nvml.SUCCESS && back == nvml.P2P_STATUS_OK
}

// linkedSets divides the given number of GPUs, in the order of their indices, into sets of which every two GPUs are joined. It returns for
// each GPU the number of its set, from 1, or 0 if the GPU is alone. A GPU that could be in several sets, as in the cube mesh of eight V100s,
// is in the first.
func linkedSets(gpus int, joined func(i, j int) bool) []int {
	var sets [][]int
	for i := range gpus {
		at := 0
		for at < len(sets) && !joinsAll(sets[at], i, joined) {
			at++
		}
		if at == len(sets) {
			sets = append(sets, nil)
		}
		sets[at] = append(sets[at], i)
	}
	numbers, next := make([]int, gpus), 0
	for _, set := range sets {
		if len(set) == 1 {
			continue
		}
		next++
		for _, i := range set {
			numbers[i] = next
		}
	}
	return numbers
}

func joinsAll(set []int, i int, joined func(i, j int) bool) bool {
	for _, j := range set {
		if !joined(j, i) {
			return false
		}
	}
	return true
}
