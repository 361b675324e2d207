package inventory

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// WithUsed returns the inventory in which the given slices are used without a share. used maps slice IDs to descriptions of the users.
// These slices take no new pods.
func (inv Inventory) WithUsed(used map[string]string) Inventory {
	marked := slices.Clone(inv.slices)
	for i := range marked {
		s := &marked[i]
		s.Used = used[s.ID]
		s.updateHealth()
	}
	return Inventory{marked}
}

// UsedAndOverlapping adds to the used slices the MIG placements that overlap with them: their instances cannot be created meanwhile.
func (inv Inventory) UsedAndOverlapping(used map[string]string) map[string]string {
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

// SlicesOf returns the IDs of the slices on a device that another device plugin has allocated under the given resource and device ID.
// NVIDIA's plugin names devices by UUID or, if configured so, by index, and appends ::n to replicas.
func (inv Inventory) SlicesOf(resource, device string) (ids []string) {
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
