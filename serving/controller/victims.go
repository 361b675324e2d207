package controller

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// spare is the pod of a replica in reserve.
type spare struct {
	instance string
	pod      *v1.Pod
	since    time.Duration // when it came into reserve, after it was last needed
}

// search finds the replicas in reserve that have to be given up to make room for a pod.
type search struct {
	pod     *v1.Pod
	nodes   []*v1.Node
	podsOn  func(node string) ([]*v1.Pod, error) // returns the pods bound to a node
	leaving map[types.UID]string                 // nodes of the pods that are to end, in addition to those whose objects say so
	err     error                                // the first error of podsOn
}

// victims returns the replicas to give up, those that have been in reserve longest first. There are none if no set of them is enough, or if the pod
// has room without: once the pods that are to end have ended, or as soon as the scheduler tries again.
func (s *search) victims(spares []spare) []spare {
	byName := map[string]spare{}
	var candidates []residency.Candidate
	models := map[string]kube.FitModel{}   // by place
	nodes := map[string]*v1.Node{}         // by place
	request, _, _ := kube.RequestOf(s.pod) // no pod fits if it is not valid
	several := slices.ContainsFunc(request.Containers, func(c share.Container) bool { return c.VGPUs > 1 })
	for _, one := range spares {
		placement, placed, err := kube.PlacementOf(one.pod)
		node := s.node(one.pod.Spec.NodeName)
		if err != nil || !placed || node == nil || one.pod.Spec.SchedulerName != s.pod.Spec.SchedulerName {
			continue // only shares of the same packing model fit beside each other
		}
		place := node.Name
		if !several {
			place += "/" + placement.Containers[0].VGPUs[0].Slice
		}
		byName[one.instance], models[place], nodes[place] = one, placement.Model, node
		candidates = append(candidates, residency.Candidate{ID: one.instance, Place: place, LastUsed: one.since})
	}
	for _, name := range s.leaving {
		if node := s.node(name); node != nil && slices.ContainsFunc(slices.Collect(maps.Values(models)), func(m kube.FitModel) bool { return s.fits(node, m, nil) }) {
			return nil
		}
	}
	var found []spare
	for _, c := range residency.Victims(candidates, func(place string, without []residency.Candidate) bool {
		gone := map[types.UID]bool{}
		for _, c := range without {
			gone[byName[c.ID].pod.UID] = true
		}
		return s.fits(nodes[place], models[place], gone)
	}) {
		found = append(found, byName[c.ID])
	}
	return found
}

func (s *search) node(name string) *v1.Node {
	if i := slices.IndexFunc(s.nodes, func(n *v1.Node) bool { return n.Name == name }); i >= 0 {
		return s.nodes[i]
	}
	return nil
}

// fits reports whether the scheduler would place the pod on a node, as far as that depends on the node and its pods. The pods in without and those
// that are to end are left out.
func (s *search) fits(node *v1.Node, model kube.FitModel, without map[types.UID]bool) bool {
	inventory, present, err := kube.InventoryOf(node)
	if err != nil || !present {
		return false
	}
	if eligible, _ := nodeview.NewEligibilityCheck(s.pod).Check(node); eligible != nodeview.Eligible {
		return false
	}
	pods, err := s.podsOn(node.Name)
	if err != nil {
		if s.err == nil {
			s.err = err
		}
		return false
	}
	packer := packing.Packer{Rules: packing.NewRules(packing.Model(model)), Ranker: unranked{}}
	free := node.Status.Allocatable
	cpu, ram := packing.MilliCPU(free.Cpu().MilliValue()), share.Bytes(free.Memory().Value())
	state := nodeview.OccupancyBuilder{
		Node: packing.NewNode(node.Name, nodeview.Slices(inventory), 0, 0), Packer: packer, PodRequest: nodeview.PodRequestOf,
	}
	for _, pod := range pods {
		if _, leaves := s.leaving[pod.UID]; leaves || without[pod.UID] || isLeaving(pod) || kube.Ended(pod) {
			continue
		}
		state.AddPod(pod)
		request := nodeview.PodRequestOf(pod).Pod
		cpu, ram = cpu-request.CPU, ram-request.RAM
	}
	if state.Build() != nil {
		return false
	}
	request := nodeview.PodRequestOf(s.pod)
	if request.RequestErr != nil || request.Pod.CPU > cpu || request.Pod.RAM > ram {
		return false
	}
	_, _, refusal := packer.Place(state.Node, &request.Pod)
	return refusal == packing.Admitted
}

// leavingLimit is the time after which a pod that should have ended is no longer expected to: a finalizer or its node may hold it for ever.
const leavingLimit = time.Minute

// leavesBy returns until when a pod is expected to end, or zero if it is not to end. It is drained for its grace period at most and then deleted, and
// the time of its deletion includes the grace period.
func leavesBy(p *v1.Pod) time.Time {
	if p.DeletionTimestamp != nil {
		return p.DeletionTimestamp.Add(leavingLimit)
	}
	if since, err := time.Parse(time.RFC3339, p.Annotations[api.AnnotationDrain]); err == nil {
		return since.Add(graceOf(p) + leavingLimit)
	}
	return time.Time{}
}

// graceOf returns the grace period of a pod.
func graceOf(p *v1.Pod) time.Duration {
	if seconds := p.Spec.TerminationGracePeriodSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return v1.DefaultTerminationGracePeriodSeconds * time.Second
}

// isLeaving reports whether a pod is about to end.
func isLeaving(p *v1.Pod) bool { return time.Now().Before(leavesBy(p)) }

// unranked is a packing.Ranker that ranks all placements equally: what counts is whether there is one.
type unranked struct{}

// Rank implements packing.Ranker.
func (unranked) Rank(*packing.Node, *packing.Pod, []packing.Choice) packing.Rank { return 0 }
