package profiles

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/controller"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// waitForServer waits until the server is ready. A server that takes too long to become ready does not run on its share. A server that does not even
// start on its node, for example because its image is missing, would start on no other share either, and would block a GPU all the time.
func (s *state) waitForServer(status *api.GPUProfileStatus, target *v1.Pod) decision {
	why := cmp.Or(api.Failure(target), api.WaitsFor(target))
	if target.Spec.NodeName == "" {
		s.set(status, metav1.ConditionFalse, api.ReasonGPUInUse, s.whyNone(status, why))
		return s.write(status)
	}
	at, limit := controller.OverdueAt(target)
	left := at.Sub(s.now)
	switch {
	case at.IsZero(): // it has no node yet
		left = 0
	case left > 0:
	case isRunning(target):
		return s.fail(status, "the server was not ready within "+limit.String())
	default:
		return s.halt(status, "the server has not started within "+limit.String()+": "+why)
	}
	s.set(status, metav1.ConditionFalse, api.ReasonStarting, "server: "+why)
	made := s.write(status)
	made.after = left
	return made
}

// whyNone says why a server has no GPU yet, and what its owner can do. It includes the scheduler's reason.
func (s *state) whyNone(status *api.GPUProfileStatus, scheduler string) string {
	d, found := s.device(status)
	if !found {
		return "server: " + scheduler
	}
	all, own := 0, ""
	for at := range s.nodes {
		for _, slice := range slicesOf(&s.nodes[at]) {
			if slice.Profile != "" || slice.Model != d.model || slice.MemoryMiB < d.memoryMiB {
				continue
			}
			if all++; own == "" {
				own = s.replicaOn(slice.ID)
			}
		}
	}
	if own == "" || all > 1 {
		return fmt.Sprintf("the server waits until one of %d %s is free, with nobody else on it: %s", all, d.model, scheduler)
	}
	idle := "which ends by itself when there are no requests"
	if least := s.function.Spec.Scaling.MinReplicas; least > 0 {
		idle = fmt.Sprintf("which its scaling.minReplicas of %d keeps", least)
	}
	return fmt.Sprintf("the only %s has the replica %s of the function, %s: the server waits until it has gone. Or add a GPU, or write resources.share and scaling.requestsPerSecond of the function",
		d.model, own, idle)
}

// replicaOn returns the name of the function's replica on a slice, or an empty string. If there are several, it always returns the same one, whatever
// their order: a different name would change the condition, and writing that would trigger the next reconciliation.
func (s *state) replicaOn(slice string) (first string) {
	for at := range s.replicas {
		p := &s.replicas[at]
		placement, present, err := kube.PlacementOf(p)
		if err != nil || !present || kube.Ended(p) || first != "" && first < p.Name {
			continue
		}
		for _, c := range placement.Containers {
			if slices.ContainsFunc(c.VGPUs, func(v kube.PlacedVGPU) bool { return v.Slice == slice }) {
				first = p.Name
			}
		}
	}
	return first
}

// waitingReplica returns a replica of the function for which the scheduler has found no place, or nil. If there are several, it always returns the same one.
// It leaves out replicas that could not use the profile's GPU: those that ask for other GPU models, and those held back by a scheduling gate.
func (s *state) waitingReplica(status *api.GPUProfileStatus) (first *v1.Pod) {
	d, found := s.device(status)
	if !found {
		return nil
	}
	for at := range s.replicas {
		p := &s.replicas[at]
		models := p.Annotations[kube.AnnotationModel]
		if p.Spec.NodeName != "" || p.DeletionTimestamp != nil || models != "" && !slices.Contains(strings.Split(models, ","), d.model) {
			continue
		}
		noPlace := slices.ContainsFunc(p.Status.Conditions, func(c v1.PodCondition) bool {
			return c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason != v1.PodReasonSchedulingGated
		})
		if noPlace && (first == nil || p.Name < first.Name) {
			first = p
		}
	}
	return first
}

// yieldPause is the time after which to look again at a profile that has given its GPU to a replica.
const yieldPause = 5 * time.Second

// yield ends the server of a profile for as long as a replica of the profile's function has no GPU: requests come before measurements. The trial in
// progress begins again later, without counting as a failed attempt.
func (s *state) yield(status *api.GPUProfileStatus, replica *v1.Pod) decision {
	status.Attempt, status.Target, status.Current = nil, nil, "" // the next decisions remove its pods
	s.set(status, metav1.ConditionFalse, api.ReasonGPUInUse, fmt.Sprintf(
		"a replica of the function waits for a GPU: the profile goes on when that has one and another is free, or the function has no requests; %s %s", replica.Name, api.WaitsFor(replica)))
	made := s.write(status)
	made.after = yieldPause
	return made
}

func isRunning(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.Name == p.Spec.Containers[0].Name && c.State.Running != nil
	})
}

// Times within which a client has to start. A server does not keep its GPU for a client that needs longer than
// clientWait, and after clientLimit the measurements end.
const (
	clientWait  = 2 * time.Minute
	clientLimit = time.Hour
)

// isLate reports whether a client has not started for so long that its server should no longer wait for it.
func isLate(client *v1.Pod, now time.Time) bool {
	return client != nil && client.DeletionTimestamp == nil && client.Status.Phase != v1.PodRunning && !kube.Ended(client) &&
		now.Sub(client.CreationTimestamp.Time) >= clientWait
}

// waitForClient waits until the client runs. After clientWait the server is removed and gives back its GPU: the ConfigMap with the request body may be
// missing, which only the kubelet knows, because the controller must not read users' ConfigMaps. Once the client runs, it finds no server, and the trial
// begins again.
func (s *state) waitForClient(status *api.GPUProfileStatus, target, client *v1.Pod) decision {
	why := cmp.Or(api.Failure(client), api.WaitsFor(client))
	if b := s.plan.body; b != nil && client.Spec.NodeName != "" { // a pod's status says nothing about its volumes
		why += fmt.Sprintf(", which mounts the key %s of ConfigMap %s: if that is not there, create it", b.Key, b.ConfigMap)
	}
	if left := client.CreationTimestamp.Add(clientLimit).Sub(s.now); left <= 0 {
		return s.halt(status, "the client has not started within "+clientLimit.String()+": "+why)
	}
	reason, next := api.ReasonStarting, clientWait
	if isLate(client, s.now) {
		reason, next = api.ReasonClientWaits, clientLimit
		why += "; the GPU is given back until then"
	}
	s.set(status, metav1.ConditionFalse, reason, "client: "+why)
	made := s.write(status)
	if made.status == nil && reason == api.ReasonClientWaits && target != nil && target.DeletionTimestamp == nil {
		made.remove = target
	}
	made.after = client.CreationTimestamp.Add(next).Sub(s.now)
	return made
}
