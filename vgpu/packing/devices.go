package packing

import "github.com/gshare-dev/gshare/vgpu/share"

// Repels reports whether a share of the tenant on the slice has the anti-affinity key. Nothing repels a share without a key, nor one of
// another tenant, so that no tenant can keep others away.
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

// repels reports whether a share on the device of slice i, on whatever slice of it, has the key of the requested one and its tenant.
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

// checkDevice returns why the other slices on the device of slice i do not let it take the share, or Admitted.
func (n *Node) checkDevice(i int, a ShareRequest) Refusal {
	switch {
	case n.isBlocked(i):
		return NoSMTime
	case n.repels(i, a):
		return Repelled
	}
	return Admitted
}

// looksAtDevices reports whether slices that are equal and empty can differ for the pod by what is on their devices.
func (p *Pod) looksAtDevices() bool {
	return p.Request.AntiAffinity != "" || p.Request.Packing != share.AnyPacking
}

// How full a device is, in steps: 0 is without a share, and each of the others is a sixtieth of its SM-time.
const (
	fullSteps = 61
	halfSteps = (fullSteps - 1) / 2

	maxInstances = 7 // of MIG on one GPU
)

// fullness returns how full a slice is, with the pod's earlier picks, in 0 to fullSteps. For a MIG instance, half of it is what the instance
// holds and half what its device does, as the others share less with it.
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

// wishCost returns how far the picks are from what the pod wishes: empty devices for spread, full ones for binpack. It is the mean over the
// picks, rounded up, in 0 to fullSteps.
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

// A rank holds, for a pod with a wish, three costs in one, each below a step of the one before: of the wish, of loading weights, and of the
// ranker, whose lowest bits are lost.
const (
	wishBits    = 37
	loadingLost = 6 // bits, which leave 64 steps of 1<<30
	rankerLost  = 7 // bits of at most 1<<36
)

// with returns the rank of a placement with what comes before the ranker's cost: the pod's wish, and the weights to be loaded.
func (r Rank) with(n *Node, pod *Pod, picks []Choice) Rank {
	loading := settlingCost(n, pod, picks)
	if pod.Request.Packing == share.AnyPacking || len(picks) == 0 {
		return r.Plus(loading)
	}
	ranker := clamp(r.Cost(), -costOfStep, costOfStep-1) >> rankerLost
	return rankOf(wishCost(n, pod, picks)<<wishBits+loading>>loadingLost+ranker, int64(r)&tieMax)
}

// resident returns the requested share as it counts on a slice under a class.
func (a *ShareRequest) resident(m Model, class share.Isolation) Resident {
	return Resident{
		Tenant: a.Tenant, Model: m, Class: class, Share: a.Share, Weights: a.Terms.Weights, AntiAffinity: a.Terms.AntiAffinity,
	}
}
