package packing

import "github.com/gshare-dev/gshare/vgpu/share"

// Repels reports whether a share of the same tenant on the slice has the same anti-affinity key. A share without a key repels none and is
// repelled by none, and neither do shares of different tenants repel each other, so no tenant can keep others away.
func (l *Load) Repels(tenant, key string) bool {
	if key == "" {
		return false
	}
	for i := range l.residents {
		if r := &l.residents[i]; r.AntiAffinity == key && r.Tenant == tenant {
			return true
		}
	}
	return false
}

// repels reports whether any share on the device of slice i, on whichever of its slices, has the tenant and the key of the requested share.
func (n *Node) repels(i int, a ShareRequest) bool {
	if a.Terms.AntiAffinity == "" {
		return false
	}
	for j := range n.Slices {
		if n.Slices[j].Device == n.Slices[i].Device && n.Loads[j].Repels(a.Tenant, a.Terms.AntiAffinity) {
			return true
		}
	}
	return false
}

// checkDevice returns why other slices on the device of slice i prevent it from taking the share, or Admitted.
func (n *Node) checkDevice(i int, a ShareRequest) Refusal {
	switch {
	case n.isBlocked(i):
		return NoSMTime
	case n.repels(i, a):
		return Repelled
	}
	return Admitted
}

// looksAtDevices reports whether the pod may treat equal, empty slices differently because of what else is on their devices.
func (p *Pod) looksAtDevices() bool {
	return p.Request.AntiAffinity != "" || p.Request.Packing != share.AnyPacking
}

// How full a device is, in steps: 0 means that it holds no share, and each further step is a sixtieth of its SM-time.
const (
	fullSteps = 61
	halfSteps = (fullSteps - 1) / 2

	maxInstances = 7 // of MIG on one GPU
)

// fullness returns how full a slice is, including the pod's earlier picks, from 0 to fullSteps. For a MIG instance, half of the value is
// the load of the instance and half that of its device, because the other instances of the device share less with it.
func (n *Node) fullness(pod *Pod, earlier []Choice, slice int) int64 {
	var own, all share.Area
	empty, device := true, n.Slices[slice].Device
	add := func(at int, area share.Area) {
		if n.Slices[at].Device != device {
			return
		}
		if empty, all = false, all+area; at == slice {
			own += area
		}
	}
	for i := range n.Slices {
		if !n.Loads[i].Empty() {
			add(i, n.Loads[i].requested)
		}
	}
	for _, p := range earlier {
		add(p.Slice, pod.Request.Containers[p.Container].Share.RequestArea())
	}
	if empty {
		return 0
	}
	parts := share.Area(1)
	if n.Slices[slice].Profile != "" {
		parts = maxInstances
	}
	return min(fullSteps, 1+int64((own*halfSteps+all*halfSteps/parts)/share.WholeArea))
}

// wishCost returns how far the picks are from what the pod prefers: empty devices for spread, full ones for binpack. It is the mean over
// the picks, rounded up, from 0 to fullSteps.
func wishCost(n *Node, pod *Pod, picks []Choice) int64 {
	var sum int64
	for i, p := range picks {
		full := n.fullness(pod, picks[:i], p.Slice)
		if pod.Request.Packing == share.Binpack {
			full = fullSteps - full
		}
		sum += full
	}
	count := int64(len(picks))
	return (sum + count - 1) / count
}

// The rank of a pod with a preference (Packing) holds three costs in one number, each of which counts for less than one step of the one
// before: the preference, the loading of weights, and the cost of the ranker, which loses its lowest bits.
const (
	wishBits    = 37
	loadingLost = 6 // bits dropped from the cost of loading, which leaves 64 steps of 1<<30
	rankerLost  = 7 // bits dropped from the cost of the ranker, which is at most 1<<36
)

// with returns the rank of a placement with the costs that come before the ranker's: the pod's preference, and the weights to be loaded.
func (r Rank) with(n *Node, pod *Pod, picks []Choice) Rank {
	loading := settlingCost(n, pod, picks)
	if pod.Request.Packing == share.AnyPacking || len(picks) == 0 {
		return r.Plus(loading)
	}
	ranker := clamp(r.Cost(), -costOfStep, costOfStep-1) >> rankerLost
	return rankOf(wishCost(n, pod, picks)<<wishBits+loading>>loadingLost+ranker, int64(r)&tieMax)
}

// resident returns the requested share in the form in which a slice counts it under a class.
func (a *ShareRequest) resident(m Model, class share.Isolation) Resident {
	return Resident{
		Tenant: a.Tenant, Model: m, Class: class, Share: a.Share, Weights: a.Terms.Weights, AntiAffinity: a.Terms.AntiAffinity,
	}
}
