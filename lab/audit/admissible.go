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

// rectangleScheduler is the profile whose pods are packed as rectangles; all others are packed as slots.
const rectangleScheduler = "gshare-rectangle"

// final is the final state of the cluster with the cached results of Admissible.
type final struct {
	options Options
	nodes   []*node // by name
	solver  *slot.Solver
	packs   map[string]bool     // by the shares in order
	answers map[string][]string // by the shape of the pod
}

func newFinal(nodes []*node, o Options) *final {
	return &final{options: o, nodes: nodes, solver: slot.NewSolver(), packs: map[string]bool{}, answers: map[string][]string{}}
}

// applicant is a pending pod.
type applicant struct {
	pod      *v1.Pod
	request  share.Request
	wanted   amounts
	affinity nodeaffinity.RequiredNodeAffinity
	packing  kube.FitModel
	classes  [][]share.Isolation // accepted, by container of the request
}

// Admissible returns the nodes, in order, that would admit the pod in the final state: resources, taints, cordon, node affinity
// and slices. If containers compete for slices, all combinations are tried; a node that needs more than 65,536 tests is left out.
// A pod whose request is invalid is admitted nowhere.
func (r Report) Admissible(pod v1.Pod) []string {
	request, _, err := kube.RequestOf(&pod)
	if err != nil || r.final == nil {
		return nil
	}
	a := newApplicant(&pod, request)
	key := a.shape()
	names, known := r.final.answers[key]
	if !known {
		names = r.final.admitting(a)
		r.final.answers[key] = names
	}
	return append([]string(nil), names...)
}

func newApplicant(pod *v1.Pod, request share.Request) *applicant {
	a := &applicant{
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

// shape returns a key of all properties that the result depends on.
func (a *applicant) shape() string {
	text, err := json.Marshal([]any{
		a.pod.Namespace, a.packing, a.request, a.wanted, a.pod.Spec.NodeSelector, a.pod.Spec.Affinity, a.pod.Spec.Tolerations,
	})
	if err != nil {
		panic(fmt.Sprintf("audit: plain data without JSON: %v", err))
	}
	return string(text)
}

func (f *final) admitting(a *applicant) []string {
	var names []string
	for _, n := range f.nodes {
		if n.spare(a.wanted) && a.welcomeOn(n.object) && f.room(n, a) {
			names = append(names, n.object.Name)
		}
	}
	return names
}

func (a *applicant) welcomeOn(n *v1.Node) bool {
	if _, repelled := repelledBy(n, a.pod, hardTaint); repelled || n.Spec.Unschedulable {
		return false
	}
	ok, err := a.affinity.Match(n)
	return ok && err == nil
}
