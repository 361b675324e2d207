package v1alpha1

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Failure returns why a container of a pod that is not Ready cannot run until the kubelet tries again: it has exited, or its image or a volume is
// missing. It returns an empty string if there is no such container.
func Failure(p *v1.Pod) string {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		w, t := c.State.Waiting, c.State.Terminated
		switch {
		case t != nil && t.ExitCode != 0:
			return fmt.Sprintf("container %s exited with code %d (%s)", c.Name, t.ExitCode, t.Reason)
		case w == nil || w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing":
			continue
		}
		text := fmt.Sprintf("container %s: %s", c.Name, w.Reason)
		if w.Message != "" {
			text += ": " + w.Message
		}
		if last := c.LastTerminationState.Terminated; last != nil {
			text += fmt.Sprintf(" (last exit code %d)", last.ExitCode)
		}
		return text
	}
	return ""
}

// WaitsFor returns what a pod that is not Ready waits for.
func WaitsFor(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			return "waits for a node: " + c.Message
		}
	}
	switch {
	case p.Spec.NodeName == "":
		return "waits for the scheduler"
	case p.Status.Phase == v1.PodRunning:
		return "waits until its readiness probe succeeds"
	}
	return "waits for the kubelet of " + p.Spec.NodeName
}
