package draplugin

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/gshare-dev/gshare/node/inventory"
)

// A MIG instance that is made on demand has a device for each of its placements, that is, for each profile and first memory slice. Each memory
// slice of a GPU is a counter of 1, and a placement consumes the counters of those that its instance occupies. So placements can be allocated
// together exactly if their instances can exist together. Compute slices need no counter: placements whose memory slices are disjoint, of those
// that the driver lists, never have more compute slices together than the GPU (package mig).

// isPlacement reports whether a slice is a MIG instance that is made when a claim of it is prepared.
func isPlacement(s inventory.Slice) bool { return s.Room != 0 }

// inAllocationOrder returns the slices in the order in which a scheduler, which takes the first device that fits, should try them. Placements come
// last; those of one GPU are ordered by size, and within a size from the end of the memory, so that larger ones still fit beside them.
func inAllocationOrder(offered []inventory.Slice) []inventory.Slice {
	position := map[string]int{} // position of each GPU in the inventory
	for i, s := range offered {
		if _, known := position[s.Device]; !known {
			position[s.Device] = i
		}
	}
	ordered := slices.Clone(offered)
	slices.SortStableFunc(ordered, func(a, b inventory.Slice) int {
		if !isPlacement(a) || !isPlacement(b) {
			return cmp.Compare(min(a.Room, 1), min(b.Room, 1))
		}
		return cmp.Or(
			cmp.Compare(position[a.Device], position[b.Device]),
			cmp.Compare(bits.OnesCount8(a.Room), bits.OnesCount8(b.Room)),
			cmp.Compare(bits.TrailingZeros8(b.Room), bits.TrailingZeros8(a.Room)),
		)
	})
	return ordered
}

// counterSetsOf returns the counters of each GPU that has placements: one for each memory slice that they consume.
func counterSetsOf(offered []inventory.Slice) (sets []resourceapi.CounterSet) {
	for _, s := range offered {
		if !isPlacement(s) {
			continue
		}
		name := DeviceName(s.Device)
		i := slices.IndexFunc(sets, func(c resourceapi.CounterSet) bool { return c.Name == name })
		if i < 0 {
			i, sets = len(sets), append(sets, resourceapi.CounterSet{Name: name, Counters: map[string]resourceapi.Counter{}})
		}
		for counter, one := range memorySlices(s.Room) {
			sets[i].Counters[counter] = one
		}
	}
	return sets
}

// consumptionOf returns which counters of its GPU a slice consumes: none unless it is a placement.
func consumptionOf(s inventory.Slice) []resourceapi.DeviceCounterConsumption {
	if !isPlacement(s) {
		return nil
	}
	return []resourceapi.DeviceCounterConsumption{{CounterSet: DeviceName(s.Device), Counters: memorySlices(s.Room)}}
}

// memorySlices returns a counter of 1 for each memory slice in the bit set.
func memorySlices(room uint8) map[string]resourceapi.Counter {
	counters := map[string]resourceapi.Counter{}
	for i := range 8 {
		if room>>i&1 == 1 {
			counters[fmt.Sprintf("memory-slice-%d", i)] = resourceapi.Counter{Value: count(1)}
		}
	}
	return counters
}
