package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// gpus checks what the node agent has published: the inventory, and the capacities that follow from it.
func (e *examination) gpus(n *examinedNode) {
	inventory, present, err := kube.InventoryOf(n.Object)
	switch {
	case !present:
		e.say(gpus, n.Name, "inventory", Failed, "none", "the node agent publishes it: look at its log, and at its rights to patch nodes")
		return
	case err != nil:
		e.say(gpus, n.Name, "inventory", Failed, err.Error(), "look at the agent's log; an agent of another version may have written it")
		return
	case len(inventory.Slices) == 0:
		e.say(gpus, n.Name, "inventory", Failed, "no slices", "no GPU was found: is the NVIDIA driver loaded (nvidia-smi), and does the agent's configuration name devices that are there?")
		return
	}
	e.say(gpus, n.Name, "inventory", OK, kinds(inventory), "")
	if len(n.agents) == 0 {
		e.say(gpus, n.Name, "owner", Warning, "an inventory without a node agent", "it is out of date: pods may be placed that cannot start")
	}
	e.health(n)
	e.classes(n)
	e.capacities(n, inventory)
	e.tickets(n)
}

// kinds counts the slices by model and profile.
func kinds(inv kube.Inventory) string {
	count := map[string]int{}
	for _, s := range inv.Slices {
		count[strings.TrimSpace(s.Model+" "+s.Profile)]++
	}
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		list = append(list, fmt.Sprintf("%d x %s", count[kind], kind))
	}
	return strings.Join(list, ", ")
}

func (e *examination) health(n *examinedNode) {
	closed := n.Closed()
	said := fmt.Sprintf("%d of %s take no new pods", len(closed), plural(len(n.Slices), "slice"))
	for _, id := range slices.Sorted(maps.Keys(closed)) {
		said += fmt.Sprintf(", %s: %s", id, cluster.WhyClosed(closed[id]))
	}
	e.check(gpus, n.Name, "health", len(closed) == 0, Warning, said, cluster.Remedy(slices.Collect(maps.Values(closed))))
}

// classes tells MPS from its absence: without it the agent offers slices whole only.
func (e *examination) classes(n *examinedNode) {
	var alone []string
	for _, s := range n.Slices {
		if !shares(s) {
			alone = append(alone, string(s.ID))
		}
	}
	e.check(gpus, n.Name, "mps", len(alone) == 0, Warning, fmt.Sprintf("%d of %s offer no class that is shared %s", len(alone), plural(len(n.Slices), "slice"), strings.Join(alone, " ")),
		"nvidia-cuda-mps-control has to be on the node, unless the agent's configuration pins the class exclusive")
}

func shares(s packing.Slice) bool {
	return slices.Contains(s.Classes, share.MPS) || slices.Contains(s.Classes, share.Elastic)
}

// capacities hold the node's status against its inventory. More than the inventory has stays while pods are bound.
func (e *examination) capacities(n *examinedNode, inventory kube.Inventory) {
	want := kube.NodeResources(inventory)
	for _, name := range slices.Sorted(maps.Keys(want)) {
		wanted, has := want[name], n.Object.Status.Allocatable[name]
		saw := fmt.Sprintf("%s %s, by the inventory %s", name, has.String(), wanted.String())
		switch has.Cmp(wanted) {
		case -1:
			e.say(gpus, n.Name, "capacity", Failed, saw, capacityFix(name))
		case 1:
			e.say(gpus, n.Name, "capacity", Warning, saw, "it stays while pods are bound, as the kubelet would fail them; it falls when the node is drained")
		default:
			e.say(gpus, n.Name, "capacity", OK, saw, "")
		}
	}
}

func capacityFix(name v1.ResourceName) string {
	if name == kube.ResourceVGPU {
		return "the agent registers it as a device plugin: is /var/lib/kubelet/device-plugins mounted into it, and does the kubelet use that directory?"
	}
	return "the agent patches it into nodes/status: look at its log, and at its rights"
}

func (e *examination) tickets(n *examinedNode) {
	has, free := n.Object.Status.Allocatable[kube.ResourceVGPU], n.Free(kube.ResourceVGPU)
	e.check(gpus, n.Name, "tickets", free.Sign() > 0, Warning, free.String()+" of "+has.String()+" free",
		"no more containers get a share here until one ends, or maxShares is raised in the agent's configuration")
}

// pods checks that every share on the node is accounted for, and enforced as its pod wants.
func (e *examination) pods(s *cluster.Snapshot, n *examinedNode) {
	if suspects := s.Suspects(n.Node); len(suspects) > 0 {
		e.say(pods, n.Name, "placements", Failed, strings.Join(suspects, "; "), "delete these pods: until then nothing more is placed on the node")
	}
	held, lacking := 0, []string{}
	for _, pod := range s.Pods {
		if pod.Spec.NodeName != n.Name || !kube.Asks(pod) || cluster.Ended(pod) {
			continue
		}
		held++
		if missing := missing(pod); missing != "" {
			lacking = append(lacking, pod.Namespace+"/"+pod.Name+": "+missing)
		}
	}
	e.check(pods, n.Name, "enforcement", len(lacking) == 0, Warning, strings.TrimSpace(plural(held, "pod")+" with shares "+strings.Join(lacking, "; ")),
		"gshare explain POD tells all that is enforced and what is not")
}

// missing is what the node agent reports as not working; what a share cannot promise anyway is no finding.
func missing(pod *v1.Pod) string {
	status, reported, err := kube.EnforcementStatusOf(pod)
	switch {
	case err != nil:
		return err.Error()
	case !reported:
		return ""
	}
	for _, c := range status.Containers {
		if c.Health != "" {
			return c.Health
		}
	}
	return ""
}
