package packing

import (
	"cmp"
	"math"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// MilliCPU is a thousandth of a CPU core.
type MilliCPU int64

// Node holds the slices of one node with the shares on them, and the CPU and memory that are free. A Node that other goroutines may read is
// never modified: changes are made to a clone.
type Node struct {
	Name   string
	Slices []Slice
	Loads  []Load // one for each slice
	CPU    MilliCPU
	RAM    share.Bytes
}

// NewNode returns a node whose slices hold no shares.
func NewNode(name string, slices []Slice, cpu MilliCPU, ram share.Bytes) *Node {
	return &Node{Name: name, Slices: slices, Loads: make([]Load, len(slices)), CPU: cpu, RAM: ram}
}

// Pod is a pod to be placed: its namespace, what it requests of the GPUs, and its requests of CPU and memory.
type Pod struct {
	Tenant  string
	Request share.Request
	CPU     MilliCPU
	RAM     share.Bytes
}

// Pick is the slice chosen for one vGPU, by its index on the node, and the isolation class under which the vGPU runs.
type Pick struct {
	Slice int
	Class share.Isolation
}

// Plan is a placement of a whole pod: a row for each container of the request with a Pick for each of its vGPUs.
type Plan [][]Pick

// Clone returns a copy. Placing shares on it does not change the original.
func (n *Node) Clone() *Node {
	c := *n
	c.Loads = make([]Load, len(n.Loads))
	for i := range n.Loads {
		c.Loads[i] = n.Loads[i].clone()
	}
	return &c
}

// Take adds the pod's shares to the slices of the plan. It does not change CPU and RAM, which the caller updates.
func (n *Node) Take(m Model, pod *Pod, plan Plan) {
	for c, picks := range plan {
		for _, p := range picks {
			n.Loads[p.Slice].Add(Resident{
				Tenant: pod.Tenant, Model: m, Class: p.Class, Share: pod.Request.Containers[c].Share, Use: pod.use(),
				Weights: pod.Request.Weights, AntiAffinity: pod.Request.AntiAffinity,
			})
		}
	}
}

// SliceIndex returns the index of the slice with the given ID, and whether there is one.
func (n *Node) SliceIndex(id SliceID) (int, bool) {
	for i := range n.Slices {
		if n.Slices[i].ID == id {
			return i, true
		}
	}
	return 0, false
}

// freeSMTime returns the SM-time of a slice that pods can still request. It is zero if the slice is unhealthy or cannot be created because
// of another MIG instance.
func (n *Node) freeSMTime(i int) MilliGPU {
	if !n.Slices[i].Healthy || n.isBlocked(i) {
		return 0
	}
	return n.Loads[i].freeSMTime()
}

// largestRequest returns the largest SM-time that a pod can still request of a slice. That is what is free, but never all of a slice that
// holds shares, even if those request no SM-time: a pod that requests a whole slice gets it alone.
func (n *Node) largestRequest(i int) MilliGPU {
	if n.Loads[i].Empty() {
		return n.freeSMTime(i)
	}
	return min(n.freeSMTime(i), WholeGPU-1)
}

// Equals reports whether two nodes have the same name, slices, CPU and memory, and the same shares in the same order. No pod can tell them
// apart.
func (n *Node) Equals(o *Node) bool {
	return n.Name == o.Name && n.CPU == o.CPU && n.RAM == o.RAM && slices.EqualFunc(n.Slices, o.Slices, Slice.equals) &&
		slices.EqualFunc(n.Loads, o.Loads, func(a, b Load) bool { return slices.EqualFunc(a.residents, b.residents, Resident.equals) })
}

// mostFree returns the largest free SM-time of any slice of the node.
func (n *Node) mostFree() share.Area {
	var most share.Area
	for i := range n.Loads {
		most = max(most, share.WholeArea-n.Loads[i].requested)
	}
	return most
}

// isUnused reports whether the node has whole GPUs only, no MIG instances, and none of them holds a share.
func (n *Node) isUnused() bool {
	for i := range n.Slices {
		if !n.Loads[i].Empty() || n.Slices[i].Profile != "" {
			return false
		}
	}
	return true
}

// hasHardwareOf reports whether two nodes without shares are equal apart from their names and the IDs of their slices.
func (n *Node) hasHardwareOf(o *Node) bool {
	if n.CPU != o.CPU || n.RAM != o.RAM || len(n.Slices) != len(o.Slices) {
		return false
	}
	for i := range n.Slices {
		if !n.Slices[i].equalsExceptID(&o.Slices[i]) {
			return false
		}
	}
	return true
}

// Part is one part of a model that is cut over several devices: the slice that holds it, and how much of the model's memory it takes there.
type Part struct {
	Pick
	Memory share.Bytes
}

// Cut divides a model between devices of the node. It takes the devices in order of free memory, largest first, and fills each one before
// it goes on to the next, until the whole model is placed. This gives the fewest parts that the node allows (Dilu, section 3.3, principle
// 2b; D8). The memory of the request is that of the whole model. Each part is the requested share with its part of that memory, and is
// charged the SMs and the quota of the whole request (D9). Slices for which usable returns false are left out. Cut returns false if the
// model does not fit.
func (r Rules) Cut(n *Node, model ShareRequest, usable func(slice int) bool) ([]Part, bool) {
	var parts []Part
	left := model.Share.Memory
	for _, f := range r.fragments(n, model, usable) {
		f.Memory = min(left, f.Memory)
		parts = append(parts, f)
		if left -= f.Memory; left == 0 {
			return parts, true
		}
	}
	return nil, false
}

// fragments returns the largest part of the model that each device of the node admits, on the slice of the device with the most free
// memory, ordered by size, largest first. Devices that admit no part are left out.
func (r Rules) fragments(n *Node, model ShareRequest, usable func(slice int) bool) []Part {
	var found []Part
	for i := range n.Slices {
		part := model
		part.Share.Memory = n.freeMemory(i) - n.Loads[i].MissingWeights(model.Tenant, model.Terms.Weights)
		if part.Share.Memory <= 0 || !usable(i) {
			continue
		}
		if class, refusal := r.AdmitOn(n, i, part); refusal == Admitted {
			found = append(found, Part{Pick{i, class}, part.Share.Memory})
		}
	}
	slices.SortFunc(found, func(a, b Part) int {
		return cmp.Or(compareFreeMemory(a.Memory, b.Memory), cmp.Compare(a.Slice, b.Slice))
	})
	seen := map[string]bool{}
	return slices.DeleteFunc(found, func(p Part) bool {
		device := n.Slices[p.Slice].Device
		taken := seen[device]
		seen[device] = true
		return taken
	})
}

// compareFreeMemory orders the devices for the parts of one model by free memory, largest first.
func compareFreeMemory(a, b share.Bytes) int { return cmp.Compare(b, a) }

// preferFreeMemory records the free memory of those options that are GPUs which the container gets for itself, so that they are chosen by
// it. The vGPUs of such a container are the parts of one model. Dilu places a cut model by free memory alone (principle 2b), so with its
// ranker the rank is cleared. With any other ranker the rank still comes first, because it knows which other pods need the larger GPUs.
func (p *Packer) preferFreeMemory(n *Node, sh share.Share, options []option) {
	_, isDilu := p.Ranker.(Complementary)
	for i := range options {
		o := &options[i]
		if n.Slices[o.Slice].Profile != "" || o.Class != share.Exclusive && !sh.IsWhole() {
			continue
		}
		if o.free = n.freeMemory(o.Slice); isDilu {
			o.rank = 0
		}
	}
}

// freeMemory returns the memory of slice i that neither shares nor weights occupy.
func (n *Node) freeMemory(i int) share.Bytes { return n.Slices[i].Memory - n.Loads[i].memory }

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

// Locality says where in its node a whole GPU is. GPUs with equal numbers above 0 are close to each other; 0 means that the GPU is in no
// set, or that its place is not known.
type Locality struct {
	NVLink int // number of a set of GPUs in which every two are joined by NVLink
	NUMA   int // number of the NUMA node to which the GPU is attached
}

// hasLocality reports whether the locality of any GPU of the node is known.
func (n *Node) hasLocality() bool {
	for i := range n.Slices {
		if (n.Slices[i].Locality != Locality{}) {
			return true
		}
	}
	return false
}

// preferNear reorders options of container c that differ in nothing that compareOptions compares but their index. Among such
// options it puts first as many as the container has vGPUs that are close to each other and to the GPUs that the pod already has. The
// options must be sorted. Nothing changes on a node without localities, and options of different rank or SM-time never change places, so no
// placement costs more because of it.
//
// It is greedy. In each step the next option is the one joined by NVLink to most of the pod's GPUs; of equal ones, the one with the
// smallest NVLink set that has enough GPUs for the remaining vGPUs, or else the largest set; then the same by NUMA node. As many pairs of
// GPUs as possible are thus joined by NVLink, and sets that are larger than needed stay whole for other pods.
func (s *search) preferNear(c int, options []option) {
	if !s.node.hasLocality() {
		return
	}
	taken := make([]Locality, 0, len(s.chosen))
	for _, o := range s.chosen {
		taken = append(taken, s.node.Slices[o.Slice].Locality)
	}
	own, remaining := s.pod.Request.Containers[c].VGPUs, 0
	for _, container := range s.pod.Request.Containers[c:] {
		remaining += container.VGPUs
	}
	for equal := options; len(equal) > 0 && own > 0; {
		end := slices.IndexFunc(equal, func(o option) bool { return !o.equalsExceptSlice(equal[0]) })
		if end < 0 {
			end = len(equal)
		}
		for i := 0; i < end && own > 0; i++ {
			next := i + s.node.nearest(equal[i:end], taken, remaining)
			o := equal[next]
			copy(equal[i+1:next+1], equal[i:next]) // the others keep their order
			equal[i] = o
			taken = append(taken, s.node.Slices[o.Slice].Locality)
			own, remaining = own-1, remaining-1
		}
		equal = equal[end:]
	}
}

// equalsExceptSlice reports whether compareOptions tells the two options apart by nothing but the index of the slice.
func (o option) equalsExceptSlice(other option) bool {
	other.Slice = o.Slice
	return compareOptions(o, other) == 0
}

// nearest returns the index of the best option for the next vGPU, given the localities of the GPUs that the pod already has and the number
// of vGPUs that remain: the first of those that are equally good.
func (n *Node) nearest(options []option, taken []Locality, remaining int) int {
	var linked, local counts
	for _, o := range options {
		linked.add(n.Slices[o.Slice].Locality.NVLink, 0, 1)
		local.add(n.Slices[o.Slice].Locality.NUMA, 0, 1)
	}
	for _, at := range taken {
		linked.add(at.NVLink, 1, 0)
		local.add(at.NUMA, 1, 0)
	}
	best, bestKey := 0, [4]int{-1}
	for i, o := range options {
		at := n.Slices[o.Slice].Locality
		near, fit := linked.of(at.NVLink, remaining)
		nearNUMA, fitNUMA := local.of(at.NUMA, remaining)
		if key := [4]int{near, fit, nearNUMA, fitNUMA}; slices.Compare(key[:], bestKey[:]) > 0 {
			best, bestKey = i, key
		}
	}
	return best
}

// counts holds, for each set, how many of its GPUs are taken by the pod and how many are available.
type counts []struct{ number, taken, available int }

func (c *counts) add(number, taken, available int) {
	if number == 0 {
		return
	}
	for i := range *c {
		if at := &(*c)[i]; at.number == number {
			at.taken, at.available = at.taken+taken, at.available+available
			return
		}
	}
	*c = append(*c, struct{ number, taken, available int }{number, taken, available})
}

// of returns how many taken GPUs are close to a GPU of the numbered set, and how well the set fits the remaining vGPUs: of sets that have
// enough GPUs the smallest fits best; of others the largest. A GPU without a set forms a set of its own.
func (c counts) of(number, remaining int) (near, fit int) {
	available := 1
	for _, at := range c {
		if at.number == number {
			near, available = at.taken, at.available
		}
	}
	if available < remaining {
		return near, available
	}
	return near, math.MaxInt - available
}
