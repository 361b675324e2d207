package doctor

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// drainProgram is the program that a preStop hook runs to have the container's CUDA work ended before SIGTERM.
const drainProgram = "gshare-drain"

// maxNamed is how many containers a finding names.
const maxNamed = 10

// checkDrain says which containers on shared slices of the node have their CUDA work ended before SIGTERM, and names those that do not ask for it: if
// one of these is killed in mid-kernel, others on its slice may fail. A hook on a slice that is not shared fails.
func (e *examination) checkDrain(s *cluster.Snapshot, n *examinedNode) {
	if !slices.ContainsFunc(n.Slices, canShare) {
		return
	}
	var drained int
	var without, needless []string
	for _, pod := range s.Pods {
		if pod.Spec.NodeName != n.Name || kube.Ended(pod) {
			continue
		}
		placement, _, err := kube.PlacementOf(pod)
		if err != nil {
			continue // see the check of placements
		}
		for _, placed := range placement.Containers {
			hook, name := hookOf(pod, placed.Name), pod.Namespace+"/"+pod.Name+"/"+placed.Name
			switch alone := placed.VGPUs[0].Class == share.Exclusive; {
			case alone && hook == drainProgram:
				needless = append(needless, name)
			case alone:
			case hook == drainProgram:
				drained++
			case hook != "":
				without = append(without, name+" ("+hook+")")
			default:
				without = append(without, name)
			}
		}
	}
	message := fmt.Sprintf("%s on shared slices with the preStop hook %s", countOf(drained, "container"), drainProgram)
	if len(without) > 0 {
		message += "; without: " + named(without)
	}
	e.addCheck(pods, n.Name, "drain", len(without) == 0, Warning, message,
		"if SIGTERM kills the program in mid-kernel, as a training script, add the preStop hook of docs/use.md; a program that ends its own work needs none")
	if len(needless) > 0 {
		e.addFinding(pods, n.Name, "drain", Warning, drainProgram+" fails where a container has its GPU alone: "+named(needless), "remove the preStop hook")
	}
}

// hookOf returns what a container's preStop hook runs: drainProgram, a text about another hook, or "" if there is none.
func hookOf(pod *v1.Pod, container string) string {
	for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
		if c.Name != container || c.Lifecycle == nil || c.Lifecycle.PreStop == nil {
			continue
		}
		if exec := c.Lifecycle.PreStop.Exec; exec != nil && slices.ContainsFunc(exec.Command, func(arg string) bool { return strings.Contains(arg, drainProgram) }) {
			return drainProgram
		}
		return "it has another preStop hook"
	}
	return ""
}

// named joins names, of which it lists the first ones.
func named(names []string) string {
	slices.Sort(names)
	text := strings.Join(names[:min(len(names), maxNamed)], ", ")
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
