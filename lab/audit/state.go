package audit

// count adds a node to the totals and lists its slices.
func (c *checker) count(n *node) {
	used := map[string]bool{} // by device
	for i, s := range n.slices {
		c.report.Slices = append(c.report.Slices, stateOf(n, s, i))
		c.report.Requested += s.requested
		used[s.Device] = used[s.Device] || len(s.held) > 0
	}
	c.report.GPUs += len(used)
	for _, in := range used {
		if in {
			c.report.GPUsUsed++
		}
	}
}

func stateOf(n *node, s *slice, index int) SliceState {
	state := SliceState{
		Node: n.object.Name, Index: index, ID: s.ID, Device: s.Device, Model: s.Model, Profile: s.Profile,
		Healthy: s.Healthy, Requested: s.requested, Memory: s.memory, Capacity: s.capacity(),
	}
	for i, h := range s.held {
		if i == 0 {
			state.Packing, state.Class = h.packing, h.class
		}
		state.Shares = append(state.Shares, PlacedShare{Pod: h.pod, Container: h.container, VGPU: h.vgpu, Share: h.share})
	}
	return state
}
