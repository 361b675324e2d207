package audit

// keyed is an anti-affinity key of a namespace on a device.
type keyed struct{ device, tenant, key string }

// checkDevices checks that no device of the node holds an anti-affinity key of a namespace twice.
func (c *checker) checkDevices(n *node) {
	first := map[keyed]string{} // the first pod that has the key
	for _, s := range n.slices {
		for _, h := range s.held {
			if h.antiAffinity == "" {
				continue
			}
			k := keyed{s.Device, h.tenant, h.antiAffinity}
			if other, twice := first[k]; twice {
				c.violate(Violation{Kind: NotApart, Node: n.object.Name, Slice: s.ID, Pod: h.pod}, "pod %s on the same device has the anti-affinity %s, too",
					other, h.antiAffinity)
				continue
			}
			first[k] = h.pod
		}
	}
}

// repels reports whether one of the slices is on the device of s and holds the pod's anti-affinity key in its namespace.
func (a *pendingPod) repels(on []*slice, s *slice) bool {
	if a.request.AntiAffinity == "" {
		return false
	}
	for _, o := range on {
		for i := range o.held {
			if h := &o.held[i]; o.Device == s.Device && h.antiAffinity == a.request.AntiAffinity && h.tenant == a.pod.Namespace {
				return true
			}
		}
	}
	return false
}
