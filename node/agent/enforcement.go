package agent

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/enforcement"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// podStatus is the enforcement status of one pod, with the pod's name.
type podStatus struct {
	name types.NamespacedName
	kube.EnforcementStatus
}

// enforcementReporter computes the enforcement statuses of pods: which mechanisms limit each container's share, and what is not enforced.
type enforcementReporter struct {
	*Options
	slices  *sliceRuntime
	grants  *grantStore
	devices *deviceMonitor
	guard   *guard
}

// statuses returns the enforcement statuses of all pods with a granted share, by pod UID.
func (e *enforcementReporter) statuses() map[types.UID]podStatus {
	statuses := map[types.UID]podStatus{}
	for _, g := range e.grants.all() {
		t := statuses[g.UID]
		t.name = types.NamespacedName{Namespace: g.Namespace, Name: g.Name}
		t.Containers = append(t.Containers, e.statusOf(&g))
		statuses[g.UID] = t
	}
	return statuses
}

// statusOf returns the enforcement status of the container of a grant.
func (e *enforcementReporter) statusOf(g *grant.Grant) kube.ContainerEnforcement {
	service, _ := e.grants.serviceOf(g.ID())
	inMIG, mps := enforcement.InsideMIG(e.devices.profileOf(g)), enforcement.MPS(e.slices.HasNamespace(holderOf(g)))
	t := kube.ContainerEnforcement{Name: g.Container, Since: g.Since, Health: e.faultOf(g)}
	if g.Class() == share.Exclusive {
		t.Memory, t.SMs, t.Time, t.Identity = "alone on its devices"+inMIG, "alone on its devices", "alone on its devices", "devices"
	} else {
		t.Time, t.Identity = enforcement.HookAndTokens, "cgroup of the pod, socket of the container"
		if g.Level() < residency.Hot {
			t.Time += enforcement.IdleOnly
		}
		t.Memory = enforcement.Memory(mps, service.memoryLimit.memory) + inMIG
		t.Missing = append([]string{"a program that avoids the hook is not limited in time"}, e.mpsBypasses(g, service.memoryLimit)...)
		if service.container == nil {
			t.Missing = append(t.Missing, enforcement.Unserved)
		}
	}
	switch g.Class() {
	case share.Exclusive:
	case share.Elastic:
		t.SMs = mps + enforcement.BelowLimit + service.limitNote
	case share.MPS, share.Swap:
		t.SMs = e.smCap(g, mps)
	default:
		t.Memory, t.SMs = "hook"+inMIG, "nothing"
		t.Missing = append([]string{"this node does not enforce class " + string(g.Class())}, t.Missing...)
	}
	if e.slices.hasNonMPSProcess(g) {
		t.Missing = append(t.Missing, enforcement.NonMPSProcess)
	}
	if service.container != nil {
		status := service.container.Status()
		t.MemoryPeakMiB, t.Work = peakOf(&status), service.work
		if now := status.VGPUs[0].QuotaRequest; now < g.VGPUs[0].Share.QuotaRequest {
			t.QuotaPercent = int64(now) * 100 / int64(share.Whole)
		}
		if status.SelfPaced > 0 {
			t.Missing = append(t.Missing, enforcement.SelfPaced)
		}
		if status.Refused != "" {
			t.Missing = append(t.Missing, enforcement.Refused+status.Refused)
		}
	}
	t.Missing = append(t.Missing, e.violations(g)...)
	t.Missing = append(t.Missing, enforcement.Overruns(e.overrunsOf(g), e.neighboursOf(g))...)
	if e.MPS.Simulated {
		t.Missing = append(t.Missing, enforcement.Simulated)
	}
	return t
}

// faultOf returns the fault of the first faulty slice of a grant, or an empty string if all are healthy.
func (e *enforcementReporter) faultOf(g *grant.Grant) string {
	for _, s := range e.devices.currentInventory().Slices() {
		if s.Fault != "" && slices.ContainsFunc(g.VGPUs, func(v kube.PlacedVGPU) bool { return v.Slice == s.ID }) {
			return s.ID + ": " + s.Fault
		}
	}
	return ""
}

// smCap describes the mechanism that caps the SMs of a container and the cap, such as "MPS, 54 of 108 SMs".
func (e *enforcementReporter) smCap(g *grant.Grant, mps string) string {
	v := g.VGPUs[0]
	s, ok := e.devices.sliceByID(v.Slice)
	if !ok {
		return mps
	}
	return enforcement.SMs(mps, v.Share.SMLimit, s.SMs, s.Profile)
}

// mpsBypasses returns descriptions of the ways in which a program in the container can bypass the SM and memory limits of MPS, and of what
// the slice's MPS daemon cannot do.
func (e *enforcementReporter) mpsBypasses(g *grant.Grant, limit driverLimit) (escapes []string) {
	namespace := e.slices.HasNamespace(holderOf(g))
	if !namespace {
		escapes = append(escapes, enforcement.MPSEnvironment)
	}
	switch {
	case limit.isSet():
	case namespace:
		escapes = append(escapes, "a program that avoids the hook can drop MPS' limit of memory by its environment")
	default:
		escapes = append(escapes, enforcement.MemoryBypass)
	}
	return append(escapes, e.slices.Daemons.Limitations(e.slices.uuidOf(g.VGPUs[0].Slice))...)
}

// violations returns, for a container's enforcement status, texts about violations of shares by its own processes, and by others that use
// its slices without a share.
func (e *enforcementReporter) violations(g *grant.Grant) (escapes []string) {
	for _, f := range reportable(e.guard.findings()) {
		if f.pod == string(g.UID) && (f.container == "" || f.container == g.Container) {
			escapes = append(escapes, f.text)
		}
	}
	for _, v := range g.VGPUs {
		if by := e.devices.usedBy(v.Slice); by != "" {
			escapes = append(escapes, fmt.Sprintf("slice %s is also used by %s", v.Slice, by))
		}
	}
	return escapes
}

// overrunsOf returns how much a container has overrun its tokens, and was delayed by overruns of others.
func (e *enforcementReporter) overrunsOf(g *grant.Grant) token.Overruns {
	service, _ := e.grants.serviceOf(g.ID())
	return service.container.Overruns()
}

// neighboursOf returns the other containers on the slice of a grant. Those of other namespaces are returned without a name.
func (e *enforcementReporter) neighboursOf(g *grant.Grant) (list []enforcement.Neighbour) {
	for _, other := range e.grants.onSlice(g.VGPUs[0].Slice) {
		if other.ID() == g.ID() {
			continue
		}
		name := "a pod of another namespace"
		if other.Namespace == g.Namespace {
			name = "pod " + other.Name
		}
		list = append(list, enforcement.Neighbour{Name: name, Overruns: e.overrunsOf(&other)})
	}
	return list
}

// reportedFinding is a finding of the watchdog as an enforcement status shows it. It has no PID: the status stays the same until the last
// such process ends.
type reportedFinding struct {
	pod, container string
	text           string
}

// findingText returns the text of a watchdog finding in enforcement statuses. It is empty for kinds that are not shown there: their
// containers have no enforcement status.
func findingText(f watchdog.Finding) string {
	switch f.Kind {
	case watchdog.WrongDevice:
		return "a process uses a device that is not of its share"
	case watchdog.Unhooked:
		return enforcement.Unhooked(through(f.Library), f.Unhooked)
	case watchdog.Beside:
		return "a process can use the GPU" + through(f.Library) + " without the hook, and is not limited there"
	case watchdog.Uncounted, watchdog.Overdrawn:
		return enforcement.MemoryCounts(f.Counts)
	}
	return ""
}

// reportable returns the findings (processes that violate shares) that enforcement statuses show, sorted and without duplicates.
func reportable(found []watchdog.Finding) (all []reportedFinding) {
	for _, f := range found {
		if text := findingText(f); text != "" {
			all = append(all, reportedFinding{f.Pod, f.Container, text})
		}
	}
	slices.SortFunc(all, func(a, b reportedFinding) int {
		return cmp.Or(cmp.Compare(a.pod, b.pod), cmp.Compare(a.container, b.container), cmp.Compare(a.text, b.text))
	})
	return slices.Compact(all)
}

// podOf returns a Pod object with the few fields of a grant's pod that an event refers to.
func podOf(g grant.Grant) *v1.Pod {
	return &v1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace, Name: g.Name, UID: g.UID},
	}
}
