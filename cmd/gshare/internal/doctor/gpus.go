package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/node/enforcement"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// checkGPUs checks the node's inventory annotation and whether the node's resources match it.
func (e *examination) checkGPUs(s *cluster.Snapshot, n *examinedNode) {
	inventory, present, err := kube.InventoryOf(n.Object)
	switch {
	case !present:
		e.addFinding(gpus, n.Name, "inventory", Failed, "none", "check the log of the node agent, which publishes it, and its permission to patch nodes")
		return
	case err != nil:
		e.addFinding(gpus, n.Name, "inventory", Failed, err.Error(), "check the agent's log; an agent of another version may have written it")
		return
	case len(inventory.Slices) == 0 && e.offeredToClaims(n.Name) > 0:
		e.addFinding(gpus, n.Name, "inventory", OK, fmt.Sprintf("none for gshare-scheduler; %d for resource claims", e.offeredToClaims(n.Name)), "")
		return
	case len(inventory.Slices) == 0:
		e.addFinding(gpus, n.Name, "inventory", Failed, "no slices", "check that the NVIDIA driver is loaded (nvidia-smi) and that the devices in the agent's configuration exist")
		return
	}
	e.addFinding(gpus, n.Name, "inventory", OK, sliceCounts(inventory), "")
	if len(n.agents) == 0 {
		e.addFinding(gpus, n.Name, "owner", Warning, "an inventory without a node agent", "start the node agent: the inventory may be out of date and pods may fail to start")
	}
	e.rules(n, inventory)
	e.checkHealth(n)
	e.checkSharing(n)
	e.checkCapacities(n, kube.NodeResources(inventory, s.PodsOn(n.Name)...))
	e.checkDeviceIDs(n)
}

// claimDriver is the name of the driver for resource claims.
const claimDriver = "gshare.dev"

// offeredToClaims returns how many GPUs and MIG instances the node offers to resource claims. It returns 0 if that cannot be read.
func (e *examination) offeredToClaims(node string) (count int) {
	list, err := e.client.ResourceV1().ResourceSlices().List(e.ctx, metav1.ListOptions{})
	if err != nil {
		return 0
	}
	for i := range list.Items {
		if s := &list.Items[i].Spec; s.Driver == claimDriver && s.NodeName != nil && *s.NodeName == node {
			count += len(s.Devices)
		}
	}
	return count
}

// sliceCounts returns a text with the number of slices of each GPU model and MIG profile.
func sliceCounts(inv kube.Inventory) string {
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

// rules reports the rules of the node, by which shares are placed there.
func (e *examination) rules(n *examinedNode, inventory kube.Inventory) {
	r := inventory.RulesOrDefault()
	tenancy := "user"
	if r.MixTenants {
		tenancy = "mixed"
	}
	message := fmt.Sprintf("gammaPercent %d, tenancy %s, window %v", r.GammaPercent, tenancy, r.Window.Duration)
	if inventory.Rules == nil {
		message = "not published, the defaults are assumed: " + message
	}
	e.addCheck(gpus, n.Name, "rules", inventory.Rules != nil, Warning, message, "upgrade the node agent")
}

// checkHealth checks that all slices of the node accept new pods.
func (e *examination) checkHealth(n *examinedNode) {
	closed := n.Closed()
	message := fmt.Sprintf("%d of %s closed to new pods", len(closed), countOf(len(n.Slices), "slice"))
	for _, id := range slices.Sorted(maps.Keys(closed)) {
		message += fmt.Sprintf(", %s: %s", id, cluster.ReasonText(closed[id]))
	}
	e.addCheck(gpus, n.Name, "health", len(closed) == 0, Warning, message, cluster.Remedy(slices.Collect(maps.Values(closed))))
}

// checkSharing checks that every slice can be shared. Without MPS the agent offers only whole slices.
func (e *examination) checkSharing(n *examinedNode) {
	var exclusive []string
	for _, s := range n.Slices {
		if !canShare(s) {
			exclusive = append(exclusive, string(s.ID))
		}
	}
	e.addCheck(gpus, n.Name, "mps", len(exclusive) == 0, Warning,
		strings.TrimSpace(fmt.Sprintf("%d of %s cannot be shared %s", len(exclusive), countOf(len(n.Slices), "slice"), strings.Join(exclusive, " "))),
		"set kubernetes.hook, and have NVIDIA_DRIVER_CAPABILITIES include compute and utility, so that the agent's container has nvidia-cuda-mps-control; its log names what is missing")
}

// canShare reports whether a slice supports an isolation class in which several pods share it.
func canShare(s packing.Slice) bool {
	return slices.Contains(s.Classes, share.MPS) || slices.Contains(s.Classes, share.Elastic)
}

// checkCapacities compares the allocatable resources of the node with those that its agent should advertise.
func (e *examination) checkCapacities(n *examinedNode, want v1.ResourceList) {
	for _, name := range slices.Sorted(maps.Keys(want)) {
		wanted, has := want[name], n.Object.Status.Allocatable[name]
		message := fmt.Sprintf("%s %s, inventory has %s", name, has.String(), wanted.String())
		switch has.Cmp(wanted) {
		case -1:
			e.addFinding(gpus, n.Name, "capacity", Failed, message, capacityFix(name))
		case 1:
			e.addFinding(gpus, n.Name, "capacity", Warning, message, "drain the node: the agent keeps the capacity while pods are bound, which the kubelet would otherwise fail")
		default:
			e.addFinding(gpus, n.Name, "capacity", OK, message, "")
		}
	}
}

func capacityFix(name v1.ResourceName) string {
	if name == kube.ResourceVGPU {
		return "check that /var/lib/kubelet/device-plugins is mounted into the agent, which registers there as a device plugin, and that the kubelet uses that directory"
	}
	return "check the log of the agent and its permission to patch nodes/status"
}

// checkDeviceIDs checks that the node has gshare/vgpu devices left, without which no further container can start.
func (e *examination) checkDeviceIDs(n *examinedNode) {
	has, free := n.Object.Status.Allocatable[kube.ResourceVGPU], n.Free(kube.ResourceVGPU)
	e.addCheck(gpus, n.Name, "device IDs", free.Sign() > 0, Warning, free.String()+" of "+has.String()+" free",
		"raise maxShares in the agent's configuration, or wait until a container ends")
}

// checkPods checks that every pod with shares on the node has a placement, and that its shares are enforced.
func (e *examination) checkPods(s *cluster.Snapshot, n *examinedNode) {
	if suspects := s.UntrustedPods(n.Node); len(suspects) > 0 {
		e.addFinding(pods, n.Name, "placements", Failed, strings.Join(suspects, "; "), "delete these pods: until then fewer or no more pods are placed on the node")
	}
	count, reports, uncounted, limitations := 0, []string{}, []string{}, map[string]bool{}
	for _, pod := range s.Pods {
		if pod.Spec.NodeName != n.Name || !kube.RequestsShare(pod) || kube.Ended(pod) {
			continue
		}
		count++
		if text := healthOf(pod); text != "" {
			reports = append(reports, pod.Namespace+"/"+pod.Name+": "+text)
		}
		for _, text := range missing(pod, enforcement.MPSDaemon) {
			limitations[text] = true
		}
		for _, text := range missing(pod, enforcement.DriverCounts) {
			uncounted = append(uncounted, pod.Namespace+"/"+pod.Name+": "+text)
		}
	}
	for _, text := range slices.Sorted(maps.Keys(limitations)) {
		e.addFinding(pods, n.Name, "mps daemon", Warning, text, "see SECURITY.md and docs/trouble.md")
	}
	e.addCheck(pods, n.Name, "enforcement", len(reports) == 0, Warning, strings.TrimSpace(countOf(count, "pod")+" with shares "+strings.Join(reports, "; ")),
		"see the annotation gshare.dev/enforcement-status of the pod")
	if len(uncounted) > 0 {
		e.addFinding(pods, n.Name, "memory", Warning, strings.Join(uncounted, "; "),
			"its processes have memory that the hook does not count, see SECURITY.md; kubernetes.unmanagedProcesses: end ends them")
	}
}

// missing returns the node agent's texts about what it does not enforce for a pod, of which it selects those that start with beginning.
func missing(pod *v1.Pod, beginning string) (texts []string) {
	status, _, _ := kube.EnforcementStatusOf(pod)
	for _, c := range status.Containers {
		for _, text := range c.Missing {
			if strings.HasPrefix(text, beginning) {
				texts = append(texts, fmt.Sprintf("%.*s", maxReported, text))
			}
		}
	}
	return texts
}

// maxReported is the maximum number of characters shown of each text of a pod: a tenant can write texts of any length, which would hide other pods.
const maxReported = 300

// healthOf returns the problem that the node agent reports for a pod's containers, or an empty string.
func healthOf(pod *v1.Pod) string {
	status, reported, err := kube.EnforcementStatusOf(pod)
	switch {
	case err != nil:
		return err.Error()
	case !reported:
		return ""
	}
	for _, c := range status.Containers {
		if c.Health != "" {
			return fmt.Sprintf("%.*s", maxReported, c.Health)
		}
	}
	return ""
}
