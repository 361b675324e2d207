package verdict

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Place is the slice on which one vGPU of a container is placed, with the share that it holds there.
type Place struct {
	Container string     `json:"container"`
	VGPU      int        `json:"vgpu"`
	Node      string     `json:"node"`
	Slice     string     `json:"slice"`
	Model     string     `json:"model,omitempty"`
	Class     string     `json:"class"`
	Share     string     `json:"share"`
	Weights   string     `json:"weights,omitempty"`      // weights that the slice holds for the pod in addition to its share
	Key       string     `json:"antiAffinity,omitempty"` // anti-affinity key: no other share of the namespace on the GPU has it
	Beside    []Neighbor `json:"beside,omitempty"`       // the other containers on the slice
	Missing   bool       `json:"missing,omitempty"`
}

// Neighbor is another container that has a share of the same slice.
type Neighbor struct {
	Name  string `json:"name"`
	Share string `json:"share"`
}

// explainBound fills in the report for a pod that is bound to a node.
func (r *Report) explainBound(s *cluster.Snapshot, pod *v1.Pod, request *nodeview.PodRequest) {
	switch {
	case !request.Placed:
		r.set(Unplaced, fmt.Sprintf("the pod is on %s without a placement: %s, not gshare-scheduler", pod.Spec.NodeName, whoBound(s, pod)),
			"delete it and create it again with schedulerName: "+kube.SchedulerName+"; until then it may keep others from room on that node")
		return
	case request.PlacementErr != nil:
		r.set(BadPlacement, "the placement cannot be trusted: "+request.PlacementErr.Error(), "delete the pod; until then nothing more is placed on its node")
		return
	}
	i := slices.IndexFunc(s.Nodes, func(n *v1.Node) bool { return n.Name == pod.Spec.NodeName })
	if i < 0 {
		r.set(Placed, "the pod is on "+pod.Spec.NodeName+", which is no longer a node of the cluster", "delete the pod")
		return
	}
	node := s.Derive(s.Nodes[i], cluster.Profile{}, nil, cluster.Unplaced)
	r.addPlaces(node, pod, request.Placement)
	r.Reason, r.Summary = Placed, r.placementSummary(s, pod)
	r.addStatus(pod)
}

// whoBound returns the reason why a pod without a placement is on a node: another scheduler bound it, or spec.nodeName was set at creation.
func whoBound(s *cluster.Snapshot, pod *v1.Pod) string {
	if _, ours := s.Profile(pod.Spec.SchedulerName); ours || pod.Spec.SchedulerName == "" {
		return "somebody set spec.nodeName"
	}
	return fmt.Sprintf("scheduler %q bound it", pod.Spec.SchedulerName)
}

func (r *Report) addPlaces(n *cluster.Node, pod *v1.Pod, placement kube.Placement) {
	for _, c := range placement.Containers {
		for i, v := range c.VGPUs {
			at, there := n.SliceIndex(packing.SliceID(v.Slice))
			p := Place{Container: c.Name, VGPU: i, Node: n.Name, Slice: v.Slice, Class: string(v.Class), Share: ShareText(v.Share),
				Weights: weightsText(placement.Weights), Key: placement.AntiAffinity, Missing: !there}
			if there {
				p.Model = n.Slices[at].Model
			}
			for _, h := range n.Holders(v.Slice) {
				if h.Pod.UID != pod.UID || h.Container != c.Name {
					p.Beside = append(p.Beside, Neighbor{h.Name(), heldText(h)})
				}
			}
			r.Places = append(r.Places, p)
		}
	}
}

// weightsText returns the size of weights, or "" if there are none.
func weightsText(list []share.Weights) string {
	if len(list) == 0 {
		return ""
	}
	return fmt.Sprintf("%d MiB of weights, one copy for the pods of the namespace that declare them", share.MemoryOf(list)/share.MiB)
}

// heldText returns what a container holds on its slice.
func heldText(h cluster.Holder) string {
	if h.Level < residency.Hot {
		return fmt.Sprintf("%s, without SM-time, %d MiB", h.Level, h.Counted.Memory/share.MiB)
	}
	return ShareText(h.Share)
}

// placementSummary returns a sentence that names the pod's node and the number of other nodes on which the pod would fit now.
func (r *Report) placementSummary(s *cluster.Snapshot, pod *v1.Pod) string {
	where := fmt.Sprintf("the pod has its shares on node %s", pod.Spec.NodeName)
	profile, known := s.Profile(pod.Spec.SchedulerName)
	if !known || len(s.Nodes) == 1 {
		return where
	}
	free := pod.DeepCopy() // as it was before it was bound
	free.Spec.NodeName = ""
	explainer := newNodeExplainer(s, free, nodeview.PodRequestOf(pod), profile)
	fit := 0
	for _, n := range s.Nodes {
		if n.Name == pod.Spec.NodeName {
			continue
		}
		verdict, _ := explainer.explainNode(n)
		if r.Nodes = append(r.Nodes, verdict); verdict.Fits {
			fit++
		}
	}
	return fmt.Sprintf("%s; %d of the %d other nodes would take it now", where, fit, len(s.Nodes)-1)
}

// addStatus adds the enforcement status that the node agent has published for the pod, or a note that there is none yet.
func (r *Report) addStatus(pod *v1.Pod) {
	status, reported, err := kube.EnforcementStatusOf(pod)
	if err != nil || !reported {
		r.Notes = append(slices.Clip(r.Notes), "the node agent has not yet reported how the shares are enforced")
		return
	}
	for _, c := range status.Containers {
		r.Said = append(r.Said, fmt.Sprintf("agent: %s: memory by %s, SMs by %s, time by %s", c.Name, c.Memory, c.SMs, c.Time))
		for _, m := range c.Missing {
			r.Said = append(r.Said, "agent: "+c.Name+": not enforced: "+m)
		}
		if c.Health != "" {
			r.Said = append(r.Said, "agent: "+c.Name+": "+c.Health)
		}
	}
}
