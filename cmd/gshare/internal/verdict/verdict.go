// Package verdict explains on which slices a pod is placed, or why it is not scheduled, from a snapshot of its cluster. It runs the
// scheduler's own code: vgpu/packing for slices and vgpu/kube for pods.
package verdict

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/explain"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Reason is the outcome of an explanation as one word, for programs.
type Reason string

// The outcomes of an explanation.
const (
	Placed       Reason = "Placed"
	Ended        Reason = "Ended"
	NoShare      Reason = "NoShare"         // requests no resource of gshare
	BadRequest   Reason = "BadRequest"      // gshare's scheduler would reject the request
	Scheduler    Reason = "OtherScheduler"  // is for another scheduler
	Gated        Reason = "SchedulingGated" // has a scheduling gate
	Forged       Reason = "ForgedPlacement" // has a placement annotation though it is not bound
	Unplaced     Reason = "BoundWithoutPlacement"
	BadPlacement Reason = "MalformedPlacement"
	NoNode       Reason = "NoNodeFits"
	Fits         Reason = "FitsNow"
	NoClaim      Reason = "NoClaim" // one of its resource claims does not exist
	ClaimWaits   Reason = "ClaimNotAllocated"
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

// Explain returns the explanation for a pod of the snapshot.
func Explain(s *cluster.Snapshot, pod *v1.Pod) *Report {
	r := &Report{Pod: pod.Namespace + "/" + pod.Name, Scheduler: pod.Spec.SchedulerName, Said: statusMessages(pod), Notes: s.Notes}
	request := s.PodRequest(pod)
	r.Asks = requestLines(request)
	profile, known := s.Profile(pod.Spec.SchedulerName)
	switch {
	case !request.Asks:
		r.set(NoShare, "the pod requests no resource of gshare", "set gshare/sm and gshare/mem in the limits of a container"+insteadOfNVIDIA(pod))
	case kube.Ended(pod):
		r.set(Ended, "the pod has ended: "+string(pod.Status.Phase), "")
	case pod.Spec.NodeName != "":
		r.explainBound(s, pod, request)
	case request.RequestErr != nil:
		r.set(BadRequest, request.RequestErr.Error(), fixForRequest(request.RequestErr))
	case request.Placed:
		r.set(Forged, "the pod carries "+kube.AnnotationPlacement+", which only the scheduler writes", "create the pod without that annotation")
	case !known:
		r.set(Scheduler, fmt.Sprintf("the pod is for scheduler %q, which is none of gshare's (%s)", pod.Spec.SchedulerName, names(s.Profiles)),
			"set spec.schedulerName: "+kube.SchedulerName+" in a new pod; the policies of manifests/admission do so")
	case len(pod.Spec.SchedulingGates) > 0:
		r.set(Gated, "the pod is held back by the scheduling gate "+pod.Spec.SchedulingGates[0].Name, "its owner has to remove the gate")
	default:
		r.explainPending(s, pod, request, profile)
	}
	return r
}

func (r *Report) set(reason Reason, summary, fix string) {
	r.Reason, r.Summary, r.Fix = reason, summary, fix
}

// maxDetailed is the number of nodes for which a report shows every slice and the changes that would help, which takes a while for each node.
const maxDetailed = 20

// explainPending fills in the report for a pod that is not scheduled: the obstacles on each node, starting with the nodes on which the pod comes
// closest to fitting.
func (r *Report) explainPending(s *cluster.Snapshot, pod *v1.Pod, request *nodeview.PodRequest, profile cluster.Profile) {
	explainer := newNodeExplainer(s, pod, request, profile)
	open := map[string]*packing.Node{}
	for _, n := range s.Nodes {
		verdict, slices := explainer.explainNode(n)
		r.Nodes = append(r.Nodes, verdict)
		open[n.Name] = slices
	}
	slices.SortStableFunc(r.Nodes, func(a, b Node) int { return b.depth - a.depth })
	q := explain.Search{Packer: profile.Packer, Pod: &request.Pod, Annotations: pod.Annotations}
	for i := range r.Nodes {
		if i < maxDetailed {
			explainer.addSlices(&r.Nodes[i])
		}
		if n := open[r.Nodes[i].Name]; n != nil {
			q.Nodes = append(q.Nodes, n)
		}
	}
	r.Changes = q.Changes()
	if i := slices.IndexFunc(r.Nodes, func(n Node) bool { return n.Fits }); i >= 0 {
		r.set(Fits, "the pod fits on node "+r.Nodes[i].Name+" now: the scheduler has not tried it yet, or a condition that is not checked here keeps it off",
			"read the scheduler's messages; if there are none, check that it runs: gshare doctor")
		return
	}
	r.Reason, r.Summary = NoNode, countReasons(r.Nodes)
	if len(r.Nodes) > 0 {
		r.Fix = r.Nodes[0].fix()
	}
}

// countReasons returns how many nodes have each reason as their first obstacle, in the format of kube-scheduler's FailedScheduling events.
func countReasons(nodes []Node) string {
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

// requestLines returns a line for each container of the pod with the shares that it requests.
func requestLines(s *nodeview.PodRequest) (lines []string) {
	for _, c := range s.Pod.Request.Containers {
		lines = append(lines, fmt.Sprintf("%s: %d vGPU of %s", c.Name, c.VGPUs, ShareText(c.Share)))
	}
	return lines
}

// ShareText formats the SMs, time and memory of a share, such as "24% SM, 40%-100% time, 8192 MiB".
func ShareText(s share.Share) string {
	return fmt.Sprintf("%s SM, %s time, %d MiB", span(s.SMRequest, s.SMLimit), span(s.QuotaRequest, s.QuotaLimit), s.Memory/share.MiB)
}

func span(request, limit share.PerMille) string {
	if request == limit {
		return request.Percent()
	}
	return request.Percent() + "-" + limit.Percent()
}

// fixForRequest returns advice on how to correct an invalid request, or an empty string if the error names no field.
func fixForRequest(err error) string {
	var field *share.FieldError
	if !errors.As(err, &field) {
		return ""
	}
	if field.Field == share.FieldVGPU {
		return "set gshare/vgpu in the limits, or install the policies of manifests/admission, which fill it in; then create the pod again"
	}
	return "correct " + field.Field + " and create the pod again"
}

// insteadOfNVIDIA returns a phrase for the advice to a pod that requests GPUs by a resource of nvidia.com instead, else an empty string.
func insteadOfNVIDIA(pod *v1.Pod) string {
	for _, c := range pod.Spec.Containers {
		for name := range c.Resources.Limits {
			if strings.HasPrefix(string(name), "nvidia.com/") {
				return ", instead of " + string(name)
			}
		}
	}
	return ""
}

// statusMessages returns the messages that the scheduler, the kubelet and the container runtime have left in the pod's status.
func statusMessages(pod *v1.Pod) (lines []string) {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status != v1.ConditionTrue && c.Message != "" {
			lines = append(lines, "scheduler: "+c.Message)
		}
	}
	if pod.Status.Message != "" {
		lines = append(lines, "kubelet: "+pod.Status.Reason+": "+pod.Status.Message)
	}
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range list {
			if w := c.State.Waiting; w != nil && w.Message != "" {
				lines = append(lines, "container "+c.Name+": "+w.Reason+": "+w.Message)
			}
		}
	}
	return lines
}
