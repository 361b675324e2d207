package audit

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// rectangleScheduler is the name of the scheduler profile that packs pods as rectangles. Pods of all other profiles are packed as slots.
const rectangleScheduler = "gshare-rectangle"

// finalState is the state of a checked cluster, with cached results of Report.Admissible.
type finalState struct {
	options Options
	nodes   []*node // by name
	solver  *slot.Solver
	packs   map[string]bool     // by the shares, in order
	answers map[string][]string // by the pod's cacheKey
}

func newFinalState(nodes []*node, o Options) *finalState {
	return &finalState{options: o, nodes: nodes, solver: slot.NewSolver(), packs: map[string]bool{}, answers: map[string][]string{}}
}

// pendingPod is a pod that is not bound to a node, with everything on which its placement depends.
type pendingPod struct {
	pod      *v1.Pod
	request  share.Request
	wanted   amounts
	affinity nodeaffinity.RequiredNodeAffinity
	packing  kube.FitModel
	classes  [][]share.Isolation // acceptable ones, by container of the request
}

// Admissible returns the names, in order, of the nodes that could still take the pod, judged by resources, taints, cordons, node
// affinity and slices. If several containers compete for slices, it tries all combinations, but omits a node that needs more than 65,536
// tests. A pod whose request is invalid fits no node.
func (r Report) Admissible(pod v1.Pod) []string {
	request, _, err := kube.RequestOf(&pod)
	if err != nil || r.final == nil {
		return nil
	}
	a := newPendingPod(&pod, request)
	key := a.cacheKey()
	names, known := r.final.answers[key]
	if !known {
		names = r.final.admitting(a)
		r.final.answers[key] = names
	}
	return append([]string(nil), names...)
}

func newPendingPod(pod *v1.Pod, request share.Request) *pendingPod {
	a := &pendingPod{
		pod: pod, request: request, wanted: amounts{}, affinity: nodeaffinity.GetRequiredNodeAffinity(pod), packing: kube.Slots,
	}
	a.wanted.add(requestsOf(pod))
	if pod.Spec.SchedulerName == rectangleScheduler {
		a.packing = kube.Rectangles
	}
	for _, c := range request.Containers {
		a.classes = append(a.classes, classesFor(c.Share, request.Isolation))
	}
	return a
}

// cacheKey returns a string of all properties of the pod that the result of Admissible depends on.
func (a *pendingPod) cacheKey() string {
	text, err := json.Marshal([]any{
		a.pod.Namespace, a.packing, a.request, a.wanted, a.pod.Spec.NodeSelector, a.pod.Spec.Affinity, a.pod.Spec.Tolerations,
	})
	if err != nil {
		panic(fmt.Sprintf("audit: plain data without JSON: %v", err))
	}
	return string(text)
}

func (f *finalState) admitting(a *pendingPod) []string {
	var names []string
	for _, n := range f.nodes {
		if n.hasSpare(a.wanted) && a.matchesNode(n.object) && f.canHost(n, a) {
			names = append(names, n.object.Name)
		}
	}
	return names
}

func (a *pendingPod) matchesNode(n *v1.Node) bool {
	if _, repelled := untoleratedTaint(n, a.pod, hardTaint); repelled || n.Spec.Unschedulable {
		return false
	}
	ok, err := a.affinity.Match(n)
	return ok && err == nil
}

// canHost reports whether the slices of the node can take all containers of the pod together.
func (f *finalState) canHost(n *node, a *pendingPod) bool {
	if len(a.request.Containers) == 0 {
		return true
	}
	if n.doubtful {
		return false
	}
	for c := range a.request.Containers {
		if !f.enoughDevices(n.slices, a, c) {
			return false
		}
	}
	// The vGPUs of one container are on different devices, so they cannot get in each other's way.
	return len(a.request.Containers) == 1 || newSearch(f, n, a).placeContainer(0)
}

// enoughDevices reports whether container c finds as many devices that admit its share as it has vGPUs.
func (f *finalState) enoughDevices(on []*slice, a *pendingPod, c int) bool {
	var found []string
	for _, s := range on {
		if len(found) == a.request.Containers[c].VGPUs {
			return true
		}
		if slices.Contains(found, s.Device) || a.repels(on, s) {
			continue
		}
		if _, ok := f.admits(s, a, c); ok {
			found = append(found, s.Device)
		}
	}
	return len(found) == a.request.Containers[c].VGPUs
}

// admits reports whether the slice can take one more share, that of container c of the pod, and returns its isolation class.
func (f *finalState) admits(s *slice, a *pendingPod, c int) (share.Isolation, bool) {
	sh := a.request.Containers[c].Share
	if !s.Healthy || !s.ofKind(kindFor(&a.request, a.request.Containers[c].Name)) || !s.ofModel(a.request.Models) || !f.sumsAllow(s, a, sh) {
		return "", false
	}
	for _, class := range a.classes[c] {
		if s.enforces(class, a.request.Enforcement) && f.isCompatible(s, a, class) {
			return class, f.fitsBeside(s, sh, a.packing)
		}
	}
	return "", false
}

func (f *finalState) sumsAllow(s *slice, a *pendingPod, sh share.Share) bool {
	if a.request.Isolation == share.Swap {
		return len(s.held) < s.MaxShares && s.canTakeTurns(sh.Memory)
	}
	return len(s.held) < s.MaxShares &&
		(len(a.request.Weights) == 0 || s.Store) &&
		s.memoryWith(heldShare{tenant: a.pod.Namespace, share: sh, weights: a.request.Weights}) <= s.capacity() &&
		s.limits+sh.LimitArea() <= f.options.limitBound() &&
		s.requested+sh.RequestArea() <= share.WholeArea
}

// isCompatible reports whether the pod may share the slice with the pods on it, judged by isolation class, packing model and namespace.
func (f *finalState) isCompatible(s *slice, a *pendingPod, class share.Isolation) bool {
	for i := range s.held {
		h := &s.held[i]
		if h.class != class || class == share.Exclusive || h.packing != a.packing {
			return false
		}
		if h.tenant != a.pod.Namespace && (!f.options.MixTenants || class == share.Swap) {
			return false
		}
	}
	return true
}

// fitsBeside reports whether the request of one more share fits together with those on the slice. A single share always fits.
func (f *finalState) fitsBeside(s *slice, sh share.Share, m kube.FitModel) bool {
	if len(s.held) == 0 || s.inTurn() {
		return true
	}
	if s.cached == nil {
		s.cached = new(fitCache)
	}
	more := itemOf(sh)
	fit, known := s.cached.lookup(more)
	if !known {
		fit = f.fits(s, sh, m)
		s.cached.add(more, fit, m == kube.Slots || len(s.held) < reliableSearchSize)
	}
	return fit
}

// reliableSearchSize is the number of rectangles up to which an unsuccessful search implies that larger ones do not fit either.
const reliableSearchSize = 8

func (f *finalState) fits(s *slice, sh share.Share, m kube.FitModel) bool {
	var scratch [64]slot.Item
	if fit := f.solver.Fits(append(append(scratch[:0], s.items...), itemOf(sh)), s.Reserve); !fit || m == kube.Slots {
		return fit
	}
	shares := s.shares(sh)
	key := keyOf(shares)
	fit, known := f.packs[key]
	if !known {
		rects, ok := rectangle.Arrange(boxesOf(shares))
		fit = ok && verifyRectangles(shares, rects) == nil
		f.packs[key] = fit
	}
	return fit
}

// keyOf returns a string that identifies the multiset of the shares' rectangles.
func keyOf(shares []share.Share) string {
	sides := make([]uint32, len(shares))
	for i, s := range shares {
		sides[i] = uint32(s.QuotaRequest)<<16 | uint32(s.SMRequest)
	}
	slices.Sort(sides)
	key := make([]byte, 0, 4*len(sides))
	for _, side := range sides {
		key = binary.LittleEndian.AppendUint32(key, side)
	}
	return string(key)
}

// fitCache caches whether one more share fits a slice. A share that requests no more than one that fits also fits, so few tests serve
// many pods. Full quota is a separate case: in the slot model such a share takes no turns, and may fit where a share with slightly less
// quota does not.
type fitCache struct {
	fit, unfit []slot.Item
}

func (v *fitCache) lookup(i slot.Item) (fit, known bool) {
	for _, k := range v.fit {
		if requestsAtMost(i, k) {
			return true, true
		}
	}
	for _, k := range v.unfit {
		if requestsAtMost(k, i) {
			return false, true
		}
	}
	return false, false
}

// add caches a result. A negative result is cached only if it is certain, because a search that used up its budget implies nothing about
// larger shares.
func (v *fitCache) add(i slot.Item, fit, certain bool) {
	switch {
	case fit:
		v.fit = append(v.fit, i)
	case certain:
		v.unfit = append(v.unfit, i)
	}
}

// requestsAtMost reports whether a requests no more than b, and whether both or neither have full quota.
func requestsAtMost(a, b slot.Item) bool {
	return a.SM <= b.SM && a.Quota <= b.Quota && (a.Quota == share.Whole) == (b.Quota == share.Whole)
}
