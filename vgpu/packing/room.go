package packing

// shadowed says that a slice cannot be made now: it is a place for a MIG instance, and another one that takes part of its room
// holds shares. Of such a device, any slices may be used together whose rooms are disjoint.
func (n *Node) shadowed(i int) bool {
	s := &n.Slices[i]
	if s.Room == 0 {
		return false
	}
	for j := range n.Slices {
		o := &n.Slices[j]
		if j != i && o.Room&s.Room != 0 && o.Device == s.Device && !n.Loads[j].Empty() {
			return true
		}
	}
	return false
}
