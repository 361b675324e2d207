package agent

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// podStatus is the report on one pod.
type podStatus struct {
	name types.NamespacedName
	kube.EnforcementStatus
}

// Reports wait until nothing has been granted for a moment, but not for long: each makes the API server and the kubelet look at
// its pod once more, and while many pods start at once that time is theirs.
const (
	publishQuiet = time.Second
	publishLate  = time.Minute
)

// inBurst says that reports have to wait: something was granted a moment ago, and no report is late.
func (a *Agent) inBurst(told map[types.UID]string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	burst := false
	for _, g := range a.book.All() {
		age := now.Sub(g.Since)
		burst = burst || age >= 0 && age < publishQuiet // the clock may have been set back
		if told[g.UID] == "" && age > publishLate {
			return false
		}
	}
	return burst
}

// publishEnforcement writes the reports that have changed. told is what was written last.
func (a *Agent) publishEnforcement(ctx context.Context, told map[types.UID]string) (all error) {
	statuses := a.statuses()
	for uid, t := range statuses {
		text, err := kube.EncodeEnforcementStatus(t.EnforcementStatus)
		if err == nil && told[uid] != text {
			err = a.Cluster.Enforced(ctx, t.name, uid, text)
		}
		if err != nil {
			all = errors.Join(all, err)
			continue
		}
		told[uid] = text
	}
	maps.DeleteFunc(told, func(uid types.UID, _ string) bool { _, ok := statuses[uid]; return !ok })
	return all
}

func (a *Agent) statuses() map[types.UID]podStatus {
	a.mu.Lock()
	defer a.mu.Unlock()
	statuses := map[types.UID]podStatus{}
	for _, g := range a.book.All() {
		t := statuses[g.UID]
		t.name = types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
		t.Containers = append(t.Containers, a.enforcementOf(&g))
		statuses[g.UID] = t
	}
	return statuses
}

// enforcementOf says by what one container is held to its share.
func (a *Agent) enforcementOf(g *grant.Grant) kube.ContainerEnforcement {
	t := kube.ContainerEnforcement{Name: g.Container, Since: g.Since, Health: a.faultOf(g)}
	switch g.Class() {
	case share.Elastic:
		t.Memory, t.SMs = a.memoryOf(g), a.mpsOf(g)+" at the limit, hook and token server below it"+a.limits[g.ID()]
		t.Time, t.Identity = "hook and token server", "cgroup of the pod, socket of the container"
	case share.Exclusive:
		t.Memory, t.SMs, t.Time, t.Identity = "alone on its devices", "alone on its devices", "alone on its devices", "devices"
	case share.MPS:
		t.Memory, t.SMs, t.Time, t.Identity = a.memoryOf(g), a.capOf(g), "hook and token server", "cgroup of the pod, socket of the container"
	default:
		t.Memory, t.SMs, t.Time, t.Identity = "hook", "nothing", "hook and token server", "cgroup of the pod, socket of the container"
		t.Missing = append(t.Missing, "this node does not enforce class "+string(g.Class()))
	}
	t.Memory += inside(a.profileOf(g))
	if g.Class() != share.Exclusive {
		t.Missing = append(t.Missing, "a program that avoids the hook is not limited in time")
		t.Missing = append(t.Missing, a.loose(g)...)
	}
	t.Missing = append(append(t.Missing, a.bare(g)...), a.notLimited(g)...)
	if a.MPS.Simulated {
		t.Missing = append(t.Missing, "the devices are simulated")
	}
	return t
}

func (a *Agent) faultOf(g *grant.Grant) string {
	for _, s := range a.inventory.Slices() {
		if s.Fault != "" && slices.ContainsFunc(g.VGPUs, func(v kube.PlacedVGPU) bool { return v.Slice == s.ID }) {
			return s.ID + ": " + s.Fault
		}
	}
	return ""
}

// tellFaults writes events on the pods whose devices have failed or recovered since. The caller holds the lock.
func (a *Agent) tellFaults(before []inventory.Slice) {
	for _, now := range a.inventory.Slices() {
		i := slices.IndexFunc(before, func(s inventory.Slice) bool { return s.ID == now.ID })
		if i < 0 || before[i].Fault == now.Fault {
			continue
		}
		a.Log.Warn("health of a slice", "slice", now.ID, "fault", now.Fault)
		for _, g := range a.book.On(now.ID) {
			if now.Fault != "" {
				a.Cluster.Warn(podOf(g), "GPUFault", "slice "+now.ID+": "+now.Fault)
			} else {
				a.Cluster.Tell(podOf(g), "GPURecovered", "slice "+now.ID+" works again")
			}
		}
	}
}

// podOf is enough of a pod for an event.
func podOf(g grant.Grant) *v1.Pod {
	return &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name, UID: g.UID},
	}
}
