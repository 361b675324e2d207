package mps

// survivors counts the clients of a daemon that does not answer.
func (d *daemon) survivors() (n int) {
	if d.clients == nil {
		return d.suspects()
	}
	for pid, was := range d.clients {
		if lives(pid, was) {
			n++
		}
	}
	return n
}

// suspects counts those that may be clients of a daemon that has never answered this keeper: an earlier one has started it. Without a
// server it has none; with one, any process on the slice may be, and until the driver has shown those, any member.
func (d *daemon) suspects() int {
	_, servers := d.processes()
	switch {
	case len(servers) == 0:
		return 0
	case !d.keeper.hasSeen():
		return len(d.members())
	}
	known := map[int]bool{}
	for _, pid := range servers {
		known[pid] = true
	}
	return len(d.others(known))
}

// hasSeen says that the driver has shown the processes on the slices.
func (k *Keeper) hasSeen() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.seen != nil
}
