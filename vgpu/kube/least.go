package kube

// least is what a device offers however its instances are made.
type least struct{ slices, memory int64 }

// Tickets returns how many tickets each slice brings. Of places for instances that are made on demand not all can be used together:
// a device has as many tickets as the fewest instances that fill it, and the first of its places bring them.
func Tickets(inv Inventory) []int {
	slices := withDefaults(inv.Slices)
	left := map[string]int64{}
	for device, l := range placesOf(slices) {
		left[device] = fewest(l).slices
	}
	out := make([]int, len(slices))
	for i, s := range slices {
		if s.Room == 0 {
			out[i] = s.MaxShares
		} else if left[s.Device] > 0 {
			left[s.Device]--
			out[i] = s.MaxShares
		}
	}
	return out
}

// leastOf returns what the devices offer: each slice that is there, and each device with places for instances in its worst case.
func leastOf(slices []Slice) (all []least) {
	for _, s := range slices {
		if s.Room == 0 {
			all = append(all, least{1, s.MemoryMiB})
		}
	}
	for _, places := range placesOf(slices) {
		all = append(all, fewest(places))
	}
	return all
}

// placesOf returns the places of each device.
func placesOf(slices []Slice) map[string][]Slice {
	places := map[string][]Slice{}
	for _, s := range slices {
		if s.Room != 0 {
			places[s.Device] = append(places[s.Device], s)
		}
	}
	return places
}

// fewest takes the least of each over all ways to fill a device until nothing more fits. A device has at most eight memory
// slices, so what is taken is one of 256 sets.
func fewest(places []Slice) least {
	var known [256]*least
	var fill func(taken uint8) least
	fill = func(taken uint8) least {
		if known[taken] != nil {
			return *known[taken]
		}
		worst, full := least{}, true
		for _, p := range places {
			if p.Room&taken != 0 {
				continue
			}
			rest := fill(taken | p.Room)
			with := least{rest.slices + 1, rest.memory + p.MemoryMiB}
			if full {
				worst, full = with, false
			}
			worst = least{min(worst.slices, with.slices), min(worst.memory, with.memory)}
		}
		known[taken] = &worst
		return worst
	}
	return fill(0)
}
