// Package rebalanceview translates nodes, pods, namespaces and disruption budgets into the cluster of package rebalance. Pods whose
// requirements it does not understand, or whose users have not agreed, stay where they are.
package rebalanceview

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/rebalance"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Objects are the objects of a cluster, read from its API server, and who may move its pods.
type Objects struct {
	Nodes      []*v1.Node
	Pods       []*v1.Pod
	Namespaces []*v1.Namespace
	Budgets    []*policy.PodDisruptionBudget
	Scheduler  string // name of the scheduler profile that places its pods

	// Willing reports whether pods of a namespace may be moved if neither they nor the namespace agree or refuse; nil: none may.
	Willing func(namespace string) bool

	// Evictable reports whether the evicting component may evict a pod; nil: it may evict every pod.
	Evictable func(*v1.Pod) bool
}

// View is a cluster to rebalance, with the Kubernetes objects to which its indexes refer.
type View struct {
	rebalance.Cluster
	Of      []*v1.Pod                            // by index of the cluster's pods
	Waiting []*v1.Pod                            // pods that request shares and that the scheduler tries to place, by priority and then by age
	Fixed   map[Reason]int                       // how many pods with shares may not be moved, and why
	checks  map[string]nodeview.EligibilityCheck // by namespace/name
	objects []*v1.Node                           // by index of the cluster's nodes
	spare   []int64                              // how many more pods each node has room for
}

// New returns the view of a cluster.
func New(o Objects) *View {
	v := &View{Fixed: map[Reason]int{}, checks: map[string]nodeview.EligibilityCheck{}}
	v.Cluster.Packer.Rules = packing.NewRules(packing.Slots)
	v.Cluster.Eligible = v.eligible
	for _, b := range o.Budgets {
		v.Budgets = append(v.Budgets, allowedBy(b))
	}
	agreed := newAgreements(o)
	on := map[string][]*v1.Pod{}
	for _, pod := range o.Pods {
		switch {
		case kube.Ended(pod):
		case pod.Spec.NodeName != "":
			on[pod.Spec.NodeName] = append(on[pod.Spec.NodeName], pod)
		case kube.RequestsShare(pod) && pod.Spec.SchedulerName == o.Scheduler && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0:
			v.Waiting = append(v.Waiting, pod)
		}
	}
	for _, node := range o.Nodes {
		if inv, present, err := kube.InventoryOf(node); present && err == nil {
			v.addNode(node, inv, on[node.Name], agreed)
		}
	}
	slices.SortStableFunc(v.Waiting, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(nodeview.Priority(b), nodeview.Priority(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	v.learn()
	return v
}

// addNode adds a node with the pods that stay on it, and lists those of its pods that may be moved.
func (v *View) addNode(object *v1.Node, inv kube.Inventory, pods []*v1.Pod, agreed *agreements) {
	has, index := object.Status.Allocatable, len(v.Nodes)
	n := packing.NewNode(object.Name, nodeview.Slices(inv), packing.MilliCPU(has.Cpu().MilliValue()), share.Bytes(has.Memory().Value()))
	bestFit := packing.Packer{Rules: v.Packer.Rules, Ranker: packing.Balance{Demand: &packing.Demand{}}}
	build := &nodeview.OccupancyBuilder{Node: n, Packer: bestFit, PodRequest: nodeview.PodRequestOf}
	var moving []*v1.Pod
	for _, pod := range pods {
		said := nodeview.PodRequestOf(pod)
		plan, reason := planOf(n, pod, said)
		if reason == "" && said.Asks {
			reason = agreed.refusal(pod)
		}
		if said.Asks && reason == "" {
			moving = append(moving, pod)
			v.Pods = append(v.Pods, rebalance.Pod{
				Pod: said.Pod, Name: pod.Namespace + "/" + pod.Name, Node: index, Plan: plan, Movable: true, Budgets: agreed.budgetsOf(pod),
			})
			v.Of = append(v.Of, pod)
			v.checks[pod.Namespace+"/"+pod.Name] = nodeview.NewEligibilityCheck(pod)
			continue
		}
		if said.Asks {
			v.Fixed[reason]++
		}
		n.CPU -= said.Pod.CPU
		n.RAM -= said.Pod.RAM
		build.AddPod(pod)
	}
	if build.Build() != nil { // it is not known what the node's slices hold
		v.Pods, v.Of = v.Pods[:len(v.Pods)-len(moving)], v.Of[:len(v.Of)-len(moving)]
		v.Fixed[Untrusted] += len(moving)
		n = packing.NewNode(object.Name, nil, 0, 0)
	}
	v.Nodes = append(v.Nodes, n)
	v.objects = append(v.objects, object)
	v.spare = append(v.spare, has.Pods().Value()-int64(len(pods)))
}

// planOf returns where a pod runs or, if the scheduler would count something else for its replacement, why. The plan is nil for a pod that
// requests no share.
func planOf(n *packing.Node, pod *v1.Pod, said *nodeview.PodRequest) (packing.Plan, Reason) {
	p := said.Placement
	switch {
	case !said.Asks:
		return nil, ""
	case said.RequestErr != nil || said.PlacementErr != nil || !said.Placed || p.Node != n.Name || p.UID != pod.UID:
		return nil, Untrusted
	case p.Model != kube.Slots || len(p.Containers) != len(said.Pod.Request.Containers) || said.Level != residency.Hot:
		return nil, Changed
	case p.AntiAffinity != said.Pod.Request.AntiAffinity || !slices.Equal(p.Weights, said.Pod.Request.Weights): // annotations were edited after the placement
		return nil, Changed
	}
	var plan packing.Plan
	for i, c := range said.Pod.Request.Containers {
		var picks []packing.Pick
		for _, vgpu := range p.Containers[i].VGPUs {
			at, ok := n.SliceIndex(packing.SliceID(vgpu.Slice))
			if !ok || vgpu.Share != c.Share || p.Containers[i].Name != c.Name {
				return nil, Changed
			}
			picks = append(picks, packing.Pick{Slice: at, Class: vgpu.Class})
		}
		plan = append(plan, picks)
	}
	return plan, ""
}

// eligible reports whether the taints, the labels and the number of pods of a node let a pod run there.
func (v *View) eligible(p *rebalance.Pod, node int) bool {
	check, known := v.checks[p.Name]
	if !known || v.spare[node] < 1 {
		return false
	}
	result, _ := check.Check(v.objects[node])
	return result == nodeview.Eligible
}

// learn gives the ranker the demand that the scheduler would have learned from these pods.
func (v *View) learn() {
	var mix packing.Mix
	for i := range v.Pods {
		mix.Add(packing.ShapeOf(&v.Pods[i].Pod), 1)
	}
	total := packing.Capacity{Models: map[string]packing.MilliGPU{}}
	for _, n := range v.Nodes {
		total.Add(packing.CapacityOf(n, n.CPU), 1)
	}
	v.Packer.Ranker = packing.Balance{Terms: packing.AllTerms, Demand: packing.NewDemand(&mix, total)}
}

// Admit returns the moves that would make room for a waiting pod, and whether there are any.
func (v *View) Admit(pod *v1.Pod, l rebalance.Limits) (rebalance.Plan, bool) {
	said := nodeview.PodRequestOf(pod)
	if said.RequestErr != nil || unknownRequirement(pod) != "" {
		return rebalance.Plan{}, false
	}
	waiting := rebalance.Pod{Pod: said.Pod, Name: pod.Namespace + "/" + pod.Name}
	v.checks[waiting.Name] = nodeview.NewEligibilityCheck(pod)
	return rebalance.Admit(&v.Cluster, &waiting, l)
}
