package cluster

import (
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// Closed returns the slices that accept no new pods: by slice ID, the reason that the node agent published, which may be empty.
func (n *Node) Closed() map[string]kube.Reason { return n.closed }

func closedOf(inventory kube.Inventory) map[string]kube.Reason {
	closed := map[string]kube.Reason{}
	for _, s := range inventory.Slices {
		if !s.Healthy {
			closed[s.ID] = s.Reason
		}
	}
	return closed
}

// ReasonText returns the text that is shown for the reason why a slice accepts no new pods.
func ReasonText(r kube.Reason) string {
	if r == "" {
		return "no reason given"
	}
	return string(r)
}

var remedies = map[kube.Reason]string{
	kube.ReasonFault:     "the device has failed, or the driver does not find it: see the agent's log and the kernel's (Xid); it opens again when the driver reports no error",
	kube.ReasonUsed:      "processes without a share use it: see the agent's log and its metric gshare_node_slice_used",
	kube.ReasonCordoned:  "an administrator has closed it: cordon and drain in the agent's configuration (node.yaml)",
	kube.ReasonClosing:   "its agent is being replaced: wait some seconds for the new one; if it does not start, run gshare doctor",
	kube.ReasonUnwatched: "the kubelet does not watch the agent's plugin: wait some seconds; if that does not help, see the logs of the agent and of the kubelet",
}

// Remedy returns advice on how to make slices accept pods again that are closed for the given reasons.
func Remedy(reasons []kube.Reason) string {
	reasons = slices.Clone(reasons)
	slices.Sort(reasons)
	var all []string
	for _, r := range slices.Compact(reasons) {
		text := remedies[r]
		if text == "" {
			text = "see the agent's log and its metrics gshare_node_slice_*"
		}
		all = append(all, ReasonText(r)+": "+text)
	}
	return strings.Join(all, "; ")
}

// RulesRemedy is advice for a node whose configured limits of sharing differ from those of a scheduler profile.
const RulesRemedy = "set gammaPercent, tenancy and window alike in the agent's configuration (node.yaml) and in the arguments of the profile's plugin"
