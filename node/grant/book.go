package grant

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Book holds the grants of one node (the shares that containers have), and decides whether a further share fits beside them. It is not safe
// for concurrent use.
type Book struct {
	node   string // name of this node
	rules  map[packing.Model]packing.Rules
	slices Slices
	grants map[string]Grant // by ID
}

// Slices are the slices of a node on which shares can be granted.
type Slices struct {
	All    []packing.Slice
	Used   map[string]string // slices that are used without a share, by ID, with a description of the user (PodUser for one pod); nothing is granted to others there
	Claims map[string]bool   // slices on which resource claims get shares, by ID; the device plugin serves the others

	// Kept is the memory of each slice, by ID, that is not offered and so not part of All. It may have been offered before an update or a
	// change of the configuration, to pods that are still bound to the node and start again after a reboot.
	Kept map[string]share.Bytes
}

// NewBook returns a Book of the named node, without slices and grants.
func NewBook(node string) *Book {
	b := &Book{node: node, rules: map[packing.Model]packing.Rules{}, grants: map[string]Grant{}}
	for _, m := range []packing.Model{packing.Slots, packing.Rectangles} {
		b.rules[m] = packing.NewRules(m)
	}
	return b
}

// SetSlices replaces the slices of the node. Grants on slices that are gone, in use without a share, or now offered through the other
// interface remain until they are released.
func (b *Book) SetSlices(s Slices) { b.slices = s }

// Restore adds a grant of an earlier agent without checking that it fits, since its container may be running.
func (b *Book) Restore(g Grant) { b.grants[g.ID()] = g }

// Release removes the grant with this ID.
func (b *Book) Release(id string) { delete(b.grants, id) }

// Get returns the grant with this ID; false if there is none.
func (b *Book) Get(id string) (Grant, bool) {
	g, ok := b.grants[id]
	return g, ok
}

// All returns all grants, oldest first.
func (b *Book) All() []Grant {
	all := slices.Collect(maps.Values(b.grants))
	slices.SortFunc(all, func(x, y Grant) int { return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.ID(), y.ID())) })
	return all
}

// Admit returns the grant of a container: the present one or, if its placement fits beside all other grants, a new one. It may be called
// repeatedly. changed reports that the pod's placement differs from what was granted.
func (b *Book) Admit(c Claim, now time.Time) (g Grant, changed bool, _ *Refusal) {
	held, has := b.grants[c.Owner().ID()]
	if has && held.ResourceClaim.UID != c.ResourceClaim.UID {
		return Grant{}, false, refuse(UnsafePod, "container %s already has a share, and can have one: request all its devices in one claim",
			c.Container)
	}
	if has && !held.Holds(c.DeviceIDs) {
		return Grant{}, false, Ambiguous("the kubelet gives device IDs %v to a container that holds %v", c.DeviceIDs, held.DeviceIDs)
	}
	if other, ok := b.otherHolder(c.DeviceIDs, c.Owner()); ok {
		return Grant{}, false, Ambiguous("the kubelet has given a device ID of %v a second time, while a container of pod %s holds it",
			c.DeviceIDs, other.UID)
	}
	g, refusal := c.grantOf(b.node)
	if has {
		return held, refusal != nil || !slices.Equal(g.VGPUs, held.VGPUs) || !slices.Equal(g.Weights, held.Weights) ||
			g.AntiAffinity != held.AntiAffinity, nil
	}
	if refusal == nil && !g.ByClaim() {
		refusal = b.checkKind(&g, c.Pod)
	}
	if refusal == nil {
		refusal = b.start(&g, c.Pod)
	}
	if refusal != nil {
		return Grant{}, false, refusal
	}
	g.Since = now
	b.grants[g.ID()] = g
	return g, false, nil
}

// checkKind returns a refusal if the pod specifies the kind of slice for the container, but was placed on another kind: a scheduler of an
// earlier version does not know that containers can have kinds of their own. On a whole GPU, for instance, others would share what a MIG
// instance isolates.
func (b *Book) checkKind(g *Grant, pod *v1.Pod) *Refusal {
	kind := cmp.Or(pod.Annotations[kube.AnnotationContainerSlice+g.Container], pod.Annotations[kube.AnnotationSlice])
	if kind == "" || g.BestEffort {
		return nil
	}
	for _, v := range g.VGPUs {
		i := slices.IndexFunc(b.slices.All, func(s packing.Slice) bool { return string(s.ID) == v.Slice })
		if i >= 0 && !b.slices.All[i].MatchesKind(kind) {
			return refuse(Forged, "container %s asks for a slice of kind %s, and slice %s is of kind %s: delete the pod and create it again; update "+
				"gshare-scheduler if it is older than the agent", g.Container, kind, v.Slice, cmp.Or(b.slices.All[i].Profile, share.WholeGPU))
		}
	}
	return nil
}

// start sets the residency with which a container starts, or returns a refusal that says why it cannot start.
func (b *Book) start(g *Grant, pod *v1.Pod) (refusal *Refusal) {
	wanted, _, err := kube.ResidencyOf(pod)
	if err != nil || g.ByClaim() { // instances of functions get their shares through the device plugin
		wanted = residency.Fixed // the agent does not act on an annotation that it cannot read
	}
	reached, ok := residency.Start(wanted, func(l residency.Level) bool {
		refusal = b.checkFit(*g, l)
		return refusal == nil
	})
	switch {
	case refusal != nil:
		return refusal
	case wanted.Level == residency.Warm && g.Class() == share.Swap: // with nothing loaded it could not be parked, so it would have a turn
		return refuse(AwaitsTurn, "it is not the turn of the instance: it starts when gshare-controller lets it")
	case !ok:
		return refuse(Unwanted, "the instance is to be deleted")
	case wanted != residency.Fixed:
		g.Residency = reached
	}
	return nil
}

// SetResidency changes the residency of the grant with this ID, if there is one.
func (b *Book) SetResidency(id string, r residency.Reached) {
	if g, ok := b.grants[id]; ok {
		g.Residency = r
		b.grants[id] = g
	}
}

// FitsAt reports whether the grant with this ID would fit at a level beside all other grants and beside containers that are bound to the
// node but have no grant yet. The latter count as Hot, except if the grant is of class swap: there, others can start only when nobody has a
// turn.
func (b *Book) FitsAt(id string, l residency.Level, waiting []Grant) bool {
	g, ok := b.grants[id]
	if ok && g.Class() == share.Swap {
		waiting = nil
	}
	others := *b
	others.grants = maps.Clone(b.grants)
	delete(others.grants, id)
	if g.Level() == residency.Warm { // others may have been given its memory, and the kept memory is needed for contexts
		others.slices.Kept = nil
	}
	for _, w := range waiting {
		if _, started := b.grants[w.ID()]; !started {
			others.grants[w.ID()] = w
		}
	}
	return ok && others.checkFit(g, l) == nil
}

// Placed returns what the containers of a pod are to be granted according to the pod's placement on the named node. It returns nothing if
// the pod has no readable placement there.
func Placed(pod *v1.Pod, node string) (all []Grant) {
	placement, present, err := kube.PlacementOf(pod)
	if !present || err != nil || placement.Node != node || !kube.RequestsShare(pod) {
		return nil
	}
	for _, c := range placement.Containers {
		all = append(all, Grant{
			Owner: Owner{pod.UID, pod.Namespace, pod.Name, c.Name}, Model: placement.Model, VGPUs: c.VGPUs, Weights: placement.Weights,
			AntiAffinity: placement.AntiAffinity,
		})
	}
	return all
}

// otherHolder returns the grant of a container other than owner that holds one of the device IDs; false if there is none.
func (b *Book) otherHolder(deviceIDs []string, owner Owner) (Grant, bool) {
	for id, g := range b.grants {
		if id != owner.ID() && slices.ContainsFunc(deviceIDs, func(t string) bool { return slices.Contains(g.DeviceIDs, t) }) {
			return g, true
		}
	}
	return Grant{}, false
}

// PodUser describes a pod in Slices.Used.
func PodUser(namespace, name string) string { return "pod " + namespace + "/" + name }

// checkFit returns a refusal unless each vGPU of the grant, at a level, fits on its slice beside the present grants by the scheduler's
// rules.
func (b *Book) checkFit(g Grant, l residency.Level) *Refusal {
	enforcement := share.Strict
	if g.BestEffort {
		enforcement = share.BestEffortEnforcement
	}
	if len(g.VGPUs) > 1 && g.Class() != share.Exclusive {
		return refuse(NotServed, "%d slices cannot be shared by one container, as each has an MPS daemon of its own and a process can be the "+
			"client of one: delete the pod, and create it again with all SMs of each or with gshare.dev/isolation: exclusive", len(g.VGPUs))
	}
	for _, v := range g.VGPUs {
		i := slices.IndexFunc(b.slices.All, func(s packing.Slice) bool { return string(s.ID) == v.Slice })
		if i < 0 {
			return refuse(UnknownSlice, "this node has no slice %s: delete the pod and create it again", v.Slice)
		}
		// Processes of the pod itself are no reason: they may be those of a container whose grant was lost.
		if by := b.slices.Used[v.Slice]; by != "" && by != PodUser(g.Namespace, g.Name) {
			return refuse(InUse, "slice %s is used by %s: end that, or take the device out of the devices of the agent's configuration; "+
				"the container starts once the slice is free", v.Slice, by)
		}
		if b.slices.Claims[v.Slice] != g.ByClaim() {
			return refuse(OtherInterface, "the agent's configuration gives slice %s to %s: delete the pod and create it again", v.Slice,
				map[bool]string{true: "resource claims", false: "the device plugin"}[b.slices.Claims[v.Slice]])
		}
		s, whole := &b.slices.All[i], b.slices.All[i]
		whole.Memory += b.slices.Kept[v.Slice]
		if other := b.overlappingSlice(s); other != "" {
			return refuse(DoesNotFit, "slice %s cannot be made beside %s, which is granted", v.Slice, other)
		}
		ask := packing.ShareRequest{Tenant: g.Namespace, Share: chargeOf(g, l, v), Terms: share.Terms{
			Isolation: v.Class, Slice: cmp.Or(s.Profile, share.WholeGPU), Enforcement: enforcement, Weights: g.Weights,
		}}
		if _, refusal := b.rules[packing.Model(g.Model)].Admit(&whole, b.loadOf(v.Slice), ask); refusal != packing.Admitted {
			return refuse(DoesNotFit, "the placement on slice %s is not possible beside what is granted there: %v", v.Slice, refusal)
		}
		if other := b.repellingSlice(s, g); other != "" {
			return refuse(DoesNotFit, "the placement on slice %s is not possible beside what is granted on slice %s of the same GPU: %v", v.Slice, other,
				packing.Repelled)
		}
		if v.Class == share.Swap && !residency.FitsTurn(s.Memory, v.Share.Memory, b.holdersOn(v.Slice, g.ID())) {
			return refuse(AwaitsTurn, "another pod has its turn on slice %s: the container starts once that one has given the memory back", v.Slice)
		}
	}
	return nil
}

// repellingSlice returns the ID of a slice on the same device as slice s that has a grant with g's anti-affinity key in g's namespace; empty
// if there is none.
func (b *Book) repellingSlice(s *packing.Slice, g Grant) string {
	for i := range b.slices.All {
		o := &b.slices.All[i]
		if g.AntiAffinity != "" && o.Device == s.Device && b.loadOf(string(o.ID)).Repels(g.Namespace, g.AntiAffinity) {
			return string(o.ID)
		}
	}
	return ""
}

// overlappingSlice returns the ID of a slice that has grants and shares memory slices with the MIG placement s; empty if there is none.
func (b *Book) overlappingSlice(s *packing.Slice) string {
	for i := range b.slices.All {
		o := &b.slices.All[i]
		if o.ID != s.ID && o.Device == s.Device && o.MemorySlices&s.MemorySlices != 0 && !b.loadOf(string(o.ID)).Empty() {
			return string(o.ID)
		}
	}
	return ""
}

// chargeOf returns what a vGPU of a grant is charged for on its slice at a level. A vGPU of class swap is charged its whole share, as its
// next turn may come at any time; residency.FitsTurn decides who has a turn.
func chargeOf(g Grant, l residency.Level, v kube.PlacedVGPU) share.Share {
	if v.Class == share.Swap {
		return v.Share
	}
	return l.Charge(v.Share, g.Residency.Memory)
}

// holdersOn returns how much memory each grant on a slice of class swap holds, leaving out the grant with the ID except.
func (b *Book) holdersOn(slice, except string) (holders []residency.Holder) {
	for id, g := range b.grants {
		for _, v := range g.VGPUs {
			if id != except && v.Slice == slice {
				holders = append(holders, residency.Holder{Level: g.Level(), Memory: v.Share.Memory, Kept: g.Residency.Memory})
			}
		}
	}
	return holders
}

// loadOf returns the shares that are granted on a slice, in the form that admission needs.
func (b *Book) loadOf(slice string) *packing.Load {
	load := &packing.Load{}
	for _, g := range b.grants {
		for _, v := range g.VGPUs {
			if v.Slice == slice {
				v.Share = chargeOf(g, g.Level(), v)
				placement := kube.Placement{Model: g.Model, Weights: g.Weights, AntiAffinity: g.AntiAffinity}
				load.Add(nodeview.ResidentOf(g.Namespace, "", placement, v))
			}
		}
	}
	return load
}

// On returns the grants on a slice, oldest first.
func (b *Book) On(slice string) (on []Grant) {
	for _, g := range b.All() {
		if slices.ContainsFunc(g.VGPUs, func(v kube.PlacedVGPU) bool { return v.Slice == slice }) {
			on = append(on, g)
		}
	}
	return on
}

// GrantedMemory returns the sum of the device memory that all grants on a slice may hold now, and of their weights, which count once for
// each namespace.
func (b *Book) GrantedMemory(slice string) share.Bytes {
	load := b.loadOf(slice)
	if len(load.Residents()) > 0 && load.Residents()[0].Class == share.Swap {
		return residency.Held(b.holdersOn(slice, ""))
	}
	return load.Memory()
}
