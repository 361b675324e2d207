package inventory

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Mark gives the inventory with the slices marked that others use: used says by whom, by ID. Those are not offered.
func (inv Inventory) Mark(used map[string]string) Inventory {
	marked := slices.Clone(inv.slices)
	for i := range marked {
		s := &marked[i]
		s.Used = used[s.ID]
		s.judge()
	}
	return Inventory{marked}
}

// Blocked adds to the slices that are used the places that overlap with one: while that is used, its room cannot be had.
func (inv Inventory) Blocked(used map[string]string) map[string]string {
	all := maps.Clone(used)
	for _, s := range inv.slices {
		for _, o := range inv.slices {
			if used[s.ID] != "" && all[o.ID] == "" && o.Device == s.Device && o.Room&s.Room != 0 {
				all[o.ID] = used[s.ID]
			}
		}
	}
	return all
}

// Lent lists the slices that a device plugin has given away under a resource of its own, by what it calls the device:
// NVIDIA's says UUIDs of GPUs or MIG instances or, where it is set up so, indices, and adds ::n where it gives one out several
// times.
func (inv Inventory) Lent(resource, device string) (ids []string) {
	name, _, _ := strings.Cut(device, "::")
	gpu, _, _ := strings.Cut(name, ":") // 0:1 is an instance of GPU 0
	byIndex := strings.HasPrefix(resource, "nvidia.com/")
	for _, s := range inv.slices {
		if name == s.ID || name == s.Device || byIndex && gpu == strconv.Itoa(s.Index) {
			ids = append(ids, s.ID)
		}
	}
	return ids
}
