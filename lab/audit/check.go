package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// checker collects the slices and the violated rules of a cluster.
type checker struct {
	options Options
	byName  map[string]*node
	nodes   []*node // by name
	report  Report
}

// Check computes what the slices hold from the nodes and the pods bound to them, and reports the violated rules. Pods that have ended hold
// nothing and are not checked.
func Check(nodes []v1.Node, pods []v1.Pod, o Options) Report {
	c := &checker{options: o, byName: make(map[string]*node, len(nodes))}
	for i := range nodes {
		c.readNode(&nodes[i])
	}
	slices.SortFunc(c.nodes, func(a, b *node) int { return strings.Compare(a.object.Name, b.object.Name) })
	for i := range pods {
		c.readPod(&pods[i])
	}
	for _, n := range c.nodes {
		c.checkNode(n)
		c.addToReport(n)
	}
	c.report.final = newFinalState(c.nodes, o)
	return c.report
}

func (c *checker) readNode(object *v1.Node) {
	n, err := newNode(object)
	c.byName[object.Name] = n
	c.nodes = append(c.nodes, n)
	if err != nil {
		c.violate(Violation{Kind: BadInventory, Node: object.Name}, "%v", err)
	}
}

func (c *checker) readPod(pod *v1.Pod) {
	if hasEnded(pod) {
		return
	}
	if pod.Spec.NodeName == "" {
		c.checkUnbound(pod)
		return
	}
	n := c.byName[pod.Spec.NodeName]
	if n == nil {
		c.orphan(pod, "", "the node is not there")
		return
	}
	n.addPod(pod)
	c.checkEligibility(n, pod)
	c.checkPlacement(n, pod)
}

func (c *checker) checkNode(n *node) {
	c.checkResources(n)
	for _, s := range n.slices {
		c.checkSlice(n, s)
	}
	c.checkDevices(n)
}

func (c *checker) violate(v Violation, format string, args ...any) {
	v.Text = fmt.Sprintf(format, args...)
	c.report.Violations = append(c.report.Violations, v)
}

func (c *checker) orphan(pod *v1.Pod, slice, text string) {
	o := Orphan{Node: pod.Spec.NodeName, Slice: slice, Pod: nameOf(pod), Text: text}
	c.report.Orphans = append(c.report.Orphans, o)
}

// hasEnded reports whether the pod has succeeded or failed, so that it holds no resources.
func hasEnded(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
}

func nameOf(pod *v1.Pod) string { return pod.Namespace + "/" + pod.Name }

// addToReport adds the slices of a node and their sums to the report.
func (c *checker) addToReport(n *node) {
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
		Healthy: s.Healthy, Requested: s.requested, Memory: s.memoryWith(heldShare{}), Capacity: s.capacity(),
	}
	for i, h := range s.held {
		if i == 0 {
			state.Packing, state.Class = h.packing, h.class
		}
		state.Shares = append(state.Shares, PlacedShare{Pod: h.pod, Container: h.container, VGPU: h.vgpu, Share: h.share})
	}
	return state
}

// amounts are quantities of resources as integers, with CPU in millicores, as kube-scheduler compares them.
type amounts map[v1.ResourceName]int64

// node is a node with its slices and the sum of its pods' requests.
type node struct {
	object   *v1.Node
	slices   []*slice // in the order of the inventory
	byID     map[string]*slice
	has      amounts
	used     amounts
	pods     int64
	doubtful bool // it holds GPU pods whose placement is unknown; a careful scheduler puts no others there
}

func newNode(object *v1.Node) (*node, error) {
	n := &node{object: object, byID: map[string]*slice{}, has: amounts{}, used: amounts{}}
	n.has.add(object.Status.Allocatable)
	inventory, _, err := kube.InventoryOf(object)
	if err != nil {
		n.doubtful = true
		return n, err
	}
	for i := range inventory.Slices {
		s := &slice{Slice: inventory.Slices[i]}
		n.slices = append(n.slices, s)
		n.byID[s.ID] = s
	}
	return n, nil
}

// addPod adds the requests of a pod that is bound to the node.
func (n *node) addPod(pod *v1.Pod) {
	n.pods++
	n.used.add(requestsOf(pod))
}

// hasSpare reports whether the node has enough unrequested resources for one more pod.
func (n *node) hasSpare(wanted amounts) bool {
	if n.pods >= n.has[v1.ResourcePods] {
		return false
	}
	for name, amount := range wanted {
		if amount > 0 && n.used[name]+amount > n.has[name] {
			return false
		}
	}
	return true
}

func requestsOf(pod *v1.Pod) v1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}

func (a amounts) add(list v1.ResourceList) {
	for name, quantity := range list {
		if name == v1.ResourceCPU {
			a[name] += quantity.MilliValue()
		} else {
			a[name] += quantity.Value()
		}
	}
}

func (c *checker) checkResources(n *node) {
	for _, name := range slices.Sorted(maps.Keys(n.used)) {
		if used, has := n.used[name], n.has[name]; used > has {
			c.violate(Violation{Kind: Resources, Node: n.object.Name}, "%s: %d of %d are requested", name, used, has)
		}
	}
	if has := n.has[v1.ResourcePods]; n.pods > has {
		c.violate(Violation{Kind: TooManyPods, Node: n.object.Name}, "%d pods where %d may be", n.pods, has)
	}
}

// checkEligibility checks that a bound pod matches the node's labels and tolerates its taints. It ignores cordons, because they do not
// affect bound pods, and the taints that Kubernetes derives from node conditions.
func (c *checker) checkEligibility(n *node, pod *v1.Pod) {
	at := Violation{Node: n.object.Name, Pod: nameOf(pod)}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n.object); !ok || err != nil {
		at.Kind = Affinity
		c.violate(at, "the node does not match the pod's node selector or required affinity")
	}
	if taint, found := untoleratedTaint(n.object, pod, lastingTaint); found {
		at.Kind = Tainted
		c.violate(at, "the pod does not tolerate the taint %s", taint.ToString())
	}
}

// untoleratedTaint returns a taint of the node that the pod does not tolerate, among those that the filter accepts.
func untoleratedTaint(n *v1.Node, pod *v1.Pod, counts func(*v1.Taint) bool) (v1.Taint, bool) {
	return corev1.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, pod.Spec.Tolerations, counts, false)
}

func hardTaint(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}

// conditionTaints is the key prefix of the taints that Kubernetes derives from node conditions.
const conditionTaints = "node.kubernetes.io/"

func lastingTaint(t *v1.Taint) bool {
	return hardTaint(t) && !strings.HasPrefix(t.Key, conditionTaints)
}

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

// checkSlice checks the memory, limits and number of shares of a slice, and that its shares are compatible and fit together.
func (c *checker) checkSlice(n *node, s *slice) {
	if len(s.held) == 0 {
		return
	}
	c.checkSums(n, s)
	c.checkNeighbours(n, s)
	c.checkProof(n, s)
}

func (c *checker) checkSums(n *node, s *slice) {
	at := Violation{Node: n.object.Name, Slice: s.ID}
	if s.inTurn() {
		c.checkTurns(n, s)
	} else if memory := s.memoryWith(heldShare{}); memory > s.capacity() {
		at.Kind = Memory
		c.violate(at, "%d MiB are promised, the slice has %d", memory/share.MiB, s.MemoryMiB)
	}
	if bound := c.options.limitBound(); s.limits > bound {
		at.Kind = Limits
		c.violate(at, "the limits add up to an area of %d, the bound is %d", s.limits, bound)
	}
	if len(s.held) > s.MaxShares {
		at.Kind = TooMany
		c.violate(at, "%d shares where %d may be", len(s.held), s.MaxShares)
	}
}

func (c *checker) checkNeighbours(n *node, s *slice) {
	at := Violation{Node: n.object.Name, Slice: s.ID}
	if countDistinct(&s.load, func(h heldShare) string { return h.tenant }) > 1 && (!c.options.MixTenants || s.inTurn()) {
		at.Kind = MixedTenants
		c.violate(at, "pods of several namespaces")
	}
	if countDistinct(&s.load, func(h heldShare) share.Isolation { return h.class }) > 1 {
		at.Kind = MixedClasses
		c.violate(at, "shares of several isolation classes")
	}
	if countDistinct(&s.load, func(h heldShare) kube.FitModel { return h.packing }) > 1 {
		at.Kind = MixedModels
		c.violate(at, "shares of both packing models")
	}
	if len(s.held) > 1 && s.holdsExclusive() {
		at.Kind = NotExclusive
		c.violate(at, "an exclusive share among %d", len(s.held))
	}
}

func (s *slice) holdsExclusive() bool {
	for _, h := range s.held {
		if h.class == share.Exclusive {
			return true
		}
	}
	return false
}

// checkProof checks, by a slot table or, for the packing model of rectangles, by a packing, that the requests on a slice fit together. A slice with shares of
// both packing models already is a violation; its shares must still fit as slots without a reserve, as those of every correct slice do.
func (c *checker) checkProof(n *node, s *slice) {
	kind, err := NoTable, error(nil)
	switch {
	case countDistinct(&s.load, func(h heldShare) kube.FitModel { return h.packing }) > 1:
		err = proveSlots(s.shares(), 0)
	default:
		if err = proveSlots(s.shares(), s.Reserve); err == nil && s.held[0].packing == kube.Rectangles {
			kind, err = NoPacking, proveRectangles(s.shares())
		}
	}
	if err != nil {
		c.violate(Violation{Kind: kind, Node: n.object.Name, Slice: s.ID}, "%v", err)
	}
}

// inTurn reports whether the shares on a slice hold its memory in turn, that is, whether all of them are of class swap.
func (l *load) inTurn() bool {
	for i := range l.held {
		if l.held[i].class != share.Swap {
			return false
		}
	}
	return len(l.held) > 0
}

// canTakeTurns reports whether the shares on a slice, and more shares with the given memory each, can hold its memory in turn: each one must fit beside what
// the others keep there, and all together must fit into the memory of the slice and the host.
func (s *slice) canTakeTurns(more ...share.Bytes) bool {
	if s.Swap == nil {
		return false
	}
	all := more
	for i := range s.held {
		all = append(all, s.held[i].share.Memory)
	}
	left := s.capacity() + share.Bytes(s.Swap.HostMiB)*share.MiB
	kept := share.Bytes(s.Swap.KeptMiB) * share.MiB * share.Bytes(len(all)-1)
	for _, memory := range all {
		if left -= memory; memory > s.capacity()-kept {
			return false
		}
	}
	return left >= 0
}

func (c *checker) checkTurns(n *node, s *slice) {
	if !s.canTakeTurns() {
		c.violate(Violation{Kind: Memory, Node: n.object.Name, Slice: s.ID}, "%d shares cannot hold the %d MiB of the slice in turn", len(s.held), s.MemoryMiB)
	}
}

// boundPod is a pod that is bound to a node, with its request and the placement that the scheduler wrote.
type boundPod struct {
	checker   *checker
	node      *node
	pod       *v1.Pod
	request   share.Request
	known     bool // the request could be read
	placement kube.Placement
}

func (c *checker) checkUnbound(pod *v1.Pod) {
	if _, found := pod.Annotations[kube.AnnotationPlacement]; found {
		c.violate(Violation{Kind: Unbound, Pod: nameOf(pod)}, "the pod is not bound and has a placement")
	}
}

// checkPlacement checks the placement of a bound pod against its request, and adds the placed shares to the slices. The pod holds what its
// placement says, even if the request differs.
func (c *checker) checkPlacement(n *node, pod *v1.Pod) {
	request, asks, err := kube.RequestOf(pod)
	k := &boundPod{checker: c, node: n, pod: pod, request: request, known: err == nil}
	text, placed := pod.Annotations[kube.AnnotationPlacement]
	if err != nil {
		k.violate(BadRequest, "", "%v", err)
	}
	switch {
	case placed && k.readPlacement(text):
		k.compareContainers()
		k.addToSlices()
	case asks || placed:
		n.doubtful = true
	}
	if asks && !placed {
		k.violate(Unplaced, "", "the pod asks for GPUs and has no placement")
	}
}

// readPlacement decodes the placement and reports whether it names this pod and its node.
func (k *boundPod) readPlacement(text string) bool {
	var err error
	if k.placement, err = kube.DecodePlacement(text); err != nil {
		k.violate(BadPlacement, "", "%v", err)
		return false
	}
	switch {
	case k.placement.Node != k.pod.Spec.NodeName:
		k.violate(Foreign, "", "the placement is for node %s", k.placement.Node)
	case k.placement.UID != k.pod.UID:
		k.violate(Foreign, "", "the placement is for UID %s, and the pod has %s", k.placement.UID, k.pod.UID)
	default:
		return true
	}
	return false
}

func (k *boundPod) violate(kind Kind, slice, format string, args ...any) {
	v := Violation{Kind: kind, Node: k.pod.Spec.NodeName, Slice: slice, Pod: nameOf(k.pod)}
	k.checker.violate(v, format, args...)
}

// compareContainers checks that the placement has the containers of the request and no others.
func (k *boundPod) compareContainers() {
	if !k.known {
		return
	}
	for _, asked := range k.request.Containers {
		i := slices.IndexFunc(k.placement.Containers, func(p kube.PlacedContainer) bool { return p.Name == asked.Name })
		if i < 0 {
			k.violate(MissingContainer, "", "container %s asks for GPUs and is not placed", asked.Name)
			continue
		}
		k.compareContainer(asked, k.placement.Containers[i].VGPUs)
	}
	for _, placed := range k.placement.Containers {
		if !slices.ContainsFunc(k.request.Containers, func(c share.Container) bool { return c.Name == placed.Name }) {
			k.violate(ExtraContainer, "", "container %s is placed and asks for nothing", placed.Name)
		}
	}
}

func (k *boundPod) compareContainer(asked share.Container, vgpus []kube.PlacedVGPU) {
	if len(vgpus) != asked.VGPUs {
		k.violate(WrongCount, "", "container %s has %d vGPUs and asks for %d", asked.Name, len(vgpus), asked.VGPUs)
	}
	for i, v := range vgpus {
		if v.Share != asked.Share || v.Priority != k.request.Priority {
			k.violate(WrongShare, v.Slice, "container %s, vGPU %d: %v (%s) was placed, %v (%s) is asked for",
				asked.Name, i, v.Share, v.Priority, asked.Share, k.request.Priority)
		}
		if !slices.Contains(classesFor(asked.Share, k.request.Isolation), v.Class) {
			k.violate(WrongClass, v.Slice, "container %s, vGPU %d: class %s is not one that the pod accepts", asked.Name, i, v.Class)
		}
	}
}

// classesFor returns the isolation classes acceptable for a share. If the pod requests none by name, it returns those that serve the share
// with the least waste: a limit above the request needs an elastic slice, and only a share of a whole slice justifies exclusive use.
func classesFor(s share.Share, wanted share.Isolation) []share.Isolation {
	switch {
	case wanted != share.AnyIsolation:
		return []share.Isolation{wanted}
	case s.SMRequest < s.SMLimit:
		return []share.Isolation{share.Elastic}
	case s.RequestArea() == share.WholeArea:
		return []share.Isolation{share.Exclusive, share.MPS}
	}
	return []share.Isolation{share.MPS}
}

// addToSlices adds the placed shares of the pod to their slices. A share on a slice that no longer exists is reported as an orphan instead.
func (k *boundPod) addToSlices() {
	for _, c := range k.placement.Containers {
		devices := map[string]bool{}
		for i, v := range c.VGPUs {
			s := k.node.byID[v.Slice]
			if s == nil {
				k.checker.orphan(k.pod, v.Slice, "container "+c.Name+": the slice is not in the node's inventory")
				continue
			}
			if devices[s.Device] {
				k.violate(SameDevice, s.ID, "container %s has two vGPUs on device %s", c.Name, s.Device)
			}
			devices[s.Device] = true
			k.checkSlice(s, c.Name, v.Class)
			s.add(k.heldShareOf(c.Name, i, v))
		}
	}
}

func (k *boundPod) heldShareOf(container string, vgpu int, v kube.PlacedVGPU) heldShare {
	return heldShare{
		pod: nameOf(k.pod), tenant: k.pod.Namespace, container: container, vgpu: vgpu,
		packing: k.placement.Model, class: v.Class, share: k.counted(v), weights: k.placement.Weights,
		antiAffinity: k.placement.AntiAffinity,
	}
}

// counted returns how much of a placed share counts on its slice. If its pod has given up the SM-time and is not meant to get it back, only the memory
// counts. A share of class swap counts in full, because it holds the memory in turn with others.
func (k *boundPod) counted(v kube.PlacedVGPU) share.Share {
	s := v.Share
	if v.Class == share.Swap {
		return s
	}
	wanted, reached, err := kube.ResidencyOf(k.pod)
	started, stays := reached.Level != residency.Cold, wanted.Level != residency.Cold
	if err == nil && started && stays && wanted.Level < residency.Hot && reached.Level < residency.Hot {
		return share.Share{Memory: s.Memory}
	}
	return s
}

// checkSlice checks that a slice has the kind and GPU model that the pod accepts and can enforce the isolation class. It does not check
// health, because a device that becomes unhealthy keeps its pods.
func (k *boundPod) checkSlice(s *slice, container string, class share.Isolation) {
	if !k.known {
		return
	}
	kind := kindFor(&k.request, container)
	if !s.ofKind(kind) || !s.ofModel(k.request.Models) {
		k.violate(WrongDevice, s.ID, "container %s: the slice is %s %s, the pod accepts %s of %v",
			container, s.Model, s.Profile, kind, k.request.Models)
	}
	if len(k.placement.Weights) > 0 && !s.Store {
		k.violate(WrongDevice, s.ID, "container %s: the pod declares weights, and the slice has no model store", container)
	}
	if !s.enforces(class, k.request.Enforcement) {
		k.violate(NotEnforceable, s.ID, "container %s: the node offers %v here, not %s", container, s.Classes, class)
	}
}

// kindFor returns the kind of slice that the named container asks for: its own if it names one, otherwise that of the pod.
func kindFor(r *share.Request, container string) string {
	for _, c := range r.Containers {
		if c.Name == container && c.Slice != "" {
			return c.Slice
		}
	}
	return r.Slice
}

// ofKind reports whether the slice is of the requested kind: a whole GPU, any MIG instance, or the name of a MIG profile.
func (s *slice) ofKind(kind string) bool {
	whole := s.Profile == ""
	switch kind {
	case share.WholeGPU:
		return whole
	case share.AnyMIG:
		return !whole
	}
	return s.Profile == kind
}

// ofModel reports whether the GPU is of an accepted model. An empty list accepts every model.
func (s *slice) ofModel(models []string) bool {
	return len(models) == 0 || slices.Contains(models, s.Model)
}

func (s *slice) enforces(class share.Isolation, e share.Enforcement) bool {
	return e == share.BestEffortEnforcement || slices.Contains(s.Classes, class)
}
