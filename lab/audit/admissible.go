package audit

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"github.com/gshare-dev/gshare/vgpu/kube"
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
	packs   map[string]bool     // by the shares in order
	answers map[string][]string // by the shape of the pod
}

func newFinalState(nodes []*node, o Options) *finalState {
	return &finalState{options: o, nodes: nodes, solver: slot.NewSolver(), packs: map[string]bool{}, answers: map[string][]string{}}
}

// pendingPod is a pod that is not bound to a node, with what its placement depends on.
type pendingPod struct {
	pod      *v1.Pod
	request  share.Request
	wanted   amounts
	affinity nodeaffinity.RequiredNodeAffinity
	packing  kube.FitModel
	classes  [][]share.Isolation // accepted, by container of the request
}

// Admissible returns the names, in order, of the nodes that could still take the pod: by resources, taints, cordons, node affinity and
// slices. If several containers compete for slices, it tries all combinations, but omits a node that needs more than 65,536 tests. A pod
// whose request is invalid fits no node.
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
