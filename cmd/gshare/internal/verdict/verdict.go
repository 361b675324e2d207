// Package verdict explains where a pod is, or why it is nowhere, from a snapshot of its cluster. What a slice says is asked of
// vgpu/packing, what a pod says of vgpu/kube: the same code that the scheduler runs.
package verdict

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/explain"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Reason is the outcome of an explanation as one word, for programs.
type Reason string

// The verdicts.
const (
	Placed       Reason = "Placed"
	Ended        Reason = "Ended"
	NoShare      Reason = "NoShare"         // asks for no resource of gshare
	BadRequest   Reason = "BadRequest"      // no scheduler of gshare would take it
	Scheduler    Reason = "OtherScheduler"  // is not gshare's to place
	Gated        Reason = "SchedulingGated" // waits for somebody to remove a gate
	Forged       Reason = "ForgedPlacement" // carries a placement that it was not bound with
	Unplaced     Reason = "BoundWithoutPlacement"
	BadPlacement Reason = "MalformedPlacement"
	NoNode       Reason = "NoNodeFits"
	Fits         Reason = "FitsNow"
)

// Report explains one pod: where its vGPUs are placed, or why it is not scheduled.
type Report struct {
	Pod       string           `json:"pod"`
	Scheduler string           `json:"scheduler"`
	Reason    Reason           `json:"reason"`
	Summary   string           `json:"summary"`
	Fix       string           `json:"fix,omitempty"`
	Asks      []string         `json:"asks,omitempty"`
	Places    []Place          `json:"places,omitempty"`
	Changes   []explain.Change `json:"changes,omitempty"` // each would let the pod in
	Nodes     []Node           `json:"nodes,omitempty"`
	Said      []string         `json:"said,omitempty"` // by the scheduler, the kubelet and the node agent
	Notes     []string         `json:"notes,omitempty"`
}

// Of returns the explanation for a pod of the snapshot.
func Of(s *cluster.Snapshot, pod *v1.Pod) *Report {
	r := &Report{Pod: pod.Namespace + "/" + pod.Name, Scheduler: pod.Spec.SchedulerName, Said: said(pod), Notes: s.Notes}
	request := s.PodRequest(pod)
	r.Asks = asks(request)
	profile, known := s.Profile(pod.Spec.SchedulerName)
	switch {
	case !request.Asks:
		r.is(NoShare, "the pod asks for no resource of gshare", "set gshare/sm and gshare/mem in the limits of a container"+insteadOf(pod))
	case cluster.Ended(pod):
		r.is(Ended, "the pod has ended: "+string(pod.Status.Phase), "")
	case pod.Spec.NodeName != "":
		r.bound(s, pod, request)
	case request.RequestErr != nil:
		r.is(BadRequest, request.RequestErr.Error(), fixOf(request.RequestErr))
	case request.Placed:
		r.is(Forged, "the pod carries "+kube.AnnotationPlacement+", which only the scheduler writes", "create the pod without that annotation")
	case !known:
		r.is(Scheduler, fmt.Sprintf("the pod is for scheduler %q, which is none of gshare's (%s)", pod.Spec.SchedulerName, names(s.Profiles)),
			"set spec.schedulerName: "+kube.SchedulerName+" in a new pod; the policies of manifests/admission do so")
	case len(pod.Spec.SchedulingGates) > 0:
		r.is(Gated, "the pod is held back by the scheduling gate "+pod.Spec.SchedulingGates[0].Name, "whoever set the gate has to remove it")
	default:
		r.pending(s, pod, request, profile)
	}
	return r
}

func (r *Report) is(reason Reason, summary, fix string) {
	r.Reason, r.Summary, r.Fix = reason, summary, fix
}

// inDetail is the number of nodes for which a report shows every slice and the changes that would help, which takes a while for each node.
const inDetail = 20

// pending fills in the report for a pod that is not scheduled: the obstacles on each node, starting with the nodes on which the pod comes
// closest to fitting.
func (r *Report) pending(s *cluster.Snapshot, pod *v1.Pod, request *nodeview.PodRequest, profile cluster.Profile) {
	explainer := newNodeExplainer(s, pod, request, profile)
	open := map[string]*packing.Node{}
	for _, n := range s.Nodes {
		verdict, slices := explainer.ask(n)
		r.Nodes = append(r.Nodes, verdict)
		open[n.Name] = slices
	}
	slices.SortStableFunc(r.Nodes, func(a, b Node) int { return b.depth - a.depth })
	q := explain.Search{Packer: profile.Packer, Pod: &request.Pod}
	for i := range r.Nodes {
		if i < inDetail {
			explainer.look(&r.Nodes[i])
		}
		if n := open[r.Nodes[i].Name]; n != nil {
			q.Nodes = append(q.Nodes, n)
		}
	}
	r.Changes = q.Changes()
	if i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Fits }); i >= 0 {
		r.is(Fits, "node "+r.Nodes[i].Name+" has room: the scheduler has not come to the pod yet, or a condition keeps it off that is not looked at here",
			"read what the scheduler said; if it said nothing, look whether it runs: gshare doctor")
		return
	}
	r.Reason, r.Summary = NoNode, tally(r.Nodes)
	if len(r.Nodes) > 0 {
		r.Fix = r.Nodes[0].fix()
	}
}

// tally returns how many nodes have each reason as their first obstacle, in the format of kube-scheduler's FailedScheduling events.
func tally(nodes []Node) string {
	var order []string
	count := map[string]int{}
	for _, n := range nodes {
		reason := n.Obstacles[0].Reason
		if count[reason]++; count[reason] == 1 {
			order = append(order, reason)
		}
	}
	for i, reason := range order {
		order[i] = fmt.Sprintf("%d %s", count[reason], reason)
	}
	return fmt.Sprintf("0 of %d nodes fit: %s", len(nodes), strings.Join(order, ", "))
}

func names(profiles []cluster.Profile) string {
	var list []string
	for _, p := range profiles {
		list = append(list, p.Name)
	}
	return strings.Join(list, ", ")
}
