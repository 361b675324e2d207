package controller

import (
	"testing"

	v1 "k8s.io/api/core/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// TestWaits: what a pod that is not Ready waits for, or why it cannot run, in words for users.
func TestWaits(t *testing.T) {
	waiting := func(reason, message string) v1.ContainerStatus {
		return v1.ContainerStatus{Name: "server", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}}
	}
	crashed := waiting("CrashLoopBackOff", "back-off 10s restarting failed container")
	crashed.LastTerminationState.Terminated = &v1.ContainerStateTerminated{ExitCode: 137}
	exited := v1.ContainerStatus{Name: "server", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}}
	for name, test := range map[string]struct {
		status          v1.PodStatus
		node            string
		failure, waitOf string
	}{
		"new":           {v1.PodStatus{}, "", "", "waits for the scheduler"},
		"unschedulable": {v1.PodStatus{Conditions: []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Message: "no room"}}}, "", "", "waits for a node: no room"},
		"bound":         {v1.PodStatus{}, "node-1", "", "waits for the kubelet of node-1"},
		"creating":      {v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{waiting("ContainerCreating", "")}}, "node-1", "", "waits for the kubelet of node-1"},
		"running":       {v1.PodStatus{Phase: v1.PodRunning}, "node-1", "", "waits until its readiness probe succeeds"},
		"crashed":       {v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{crashed}}, "node-1", "container server: CrashLoopBackOff: back-off 10s restarting failed container (last exit code 137)", ""},
		"no image":      {v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{waiting("ErrImagePull", "not found")}}, "node-1", "container server: ErrImagePull: not found", ""},
		"exited":        {v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{exited}}, "node-1", "container server exited with code 1 (Error)", ""},
		"init exited":   {v1.PodStatus{InitContainerStatuses: []v1.ContainerStatus{exited}}, "node-1", "container server exited with code 1 (Error)", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := &v1.Pod{Spec: v1.PodSpec{NodeName: test.node}, Status: test.status}
			if got := api.Failure(p); got != test.failure {
				t.Errorf("fails with %q, want %q", got, test.failure)
			}
			if got := api.WaitsFor(p); test.waitOf != "" && got != test.waitOf {
				t.Errorf("%q, want %q", got, test.waitOf)
			}
		})
	}
}
