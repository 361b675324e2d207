package controller

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// slimPod keeps of a pod with a node only what this package and package profiles read of cached pods. A cluster has several pods for each function,
// and most of a pod is about how to run its containers. Cached pods must not be updated, only patched, as what is missing here would be lost.
//
// A pod without a node is kept as it is: room is looked for by the rules of the scheduler.
func slimPod(object any) (any, error) {
	p, isPod := object.(*v1.Pod)
	if !isPod {
		return object, nil
	}
	p.ManagedFields = nil
	if p.Spec.NodeName == "" {
		return p, nil
	}
	slim := &v1.Pod{
		TypeMeta: p.TypeMeta, ObjectMeta: p.ObjectMeta,
		Spec: v1.PodSpec{
			NodeName: p.Spec.NodeName, SchedulerName: p.Spec.SchedulerName, Resources: p.Spec.Resources, Overhead: p.Spec.Overhead,
			Containers: slimContainers(p.Spec.Containers), InitContainers: slimContainers(p.Spec.InitContainers),
			TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
		},
		Status: v1.PodStatus{
			Phase: p.Status.Phase, Reason: p.Status.Reason, Message: p.Status.Message, PodIP: p.Status.PodIP, StartTime: p.Status.StartTime,
			Conditions: slimConditions(p.Status.Conditions), InitContainerStatuses: slimStatuses(p.Status.InitContainerStatuses), ContainerStatuses: slimStatuses(p.Status.ContainerStatuses),
		},
	}
	return slim, nil
}

// slimContainers keeps what containers request, where they listen, how long they may take to start, and which stages they have.
func slimContainers(all []v1.Container) []v1.Container {
	if all == nil {
		return nil
	}
	slim := make([]v1.Container, 0, len(all))
	for at := range all {
		c := &all[at]
		one := v1.Container{Name: c.Name, Ports: c.Ports, Resources: c.Resources, RestartPolicy: c.RestartPolicy, StartupProbe: c.StartupProbe}
		if equality.Semantic.DeepEqual(c.Resources.Requests, c.Resources.Limits) { // always so for shares; saves memory
			one.Resources.Requests = one.Resources.Limits
		}
		for _, v := range c.Env {
			if v.Name == stagesVariable {
				one.Env = append(one.Env, v)
			}
		}
		slim = append(slim, one)
	}
	return slim
}

// slimConditions keeps the conditions that say whether a pod has a node and whether it is Ready.
func slimConditions(all []v1.PodCondition) []v1.PodCondition {
	var slim []v1.PodCondition
	for _, c := range all {
		if c.Type == v1.PodScheduled || c.Type == v1.PodReady {
			slim = append(slim, c)
		}
	}
	return slim
}

// slimStatuses keeps whether containers run, and why not, and which images they have: a profile is stale once replicas run another image than was measured.
func slimStatuses(all []v1.ContainerStatus) []v1.ContainerStatus {
	if all == nil {
		return nil
	}
	slim := make([]v1.ContainerStatus, 0, len(all))
	for _, s := range all {
		slim = append(slim, v1.ContainerStatus{
			Name: s.Name, State: s.State, LastTerminationState: s.LastTerminationState, Ready: s.Ready, Started: s.Started, ImageID: s.ImageID,
		})
	}
	return slim
}
