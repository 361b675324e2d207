package standalone

import (
	"os"
	"slices"

	"github.com/gshare-dev/gshare/node/core"
	"github.com/gshare-dev/gshare/node/enforcement"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// enforcementReporter computes the enforcement statuses of runs: which mechanisms limit a share, and what is not enforced.
type enforcementReporter struct {
	*Options
	devices *deviceSet
	slices  *core.Slices
	audit   *memoryAudit

	unhooked *unhookedWatch
}

// statusOf returns the enforcement status of a run: which mechanisms limit its share, and what is not enforced.
func (e *enforcementReporter) statusOf(r *run) control.EnforcementStatus {
	t := control.EnforcementStatus{
		Memory: "hook", SMs: "alone on the device", Time: enforcement.HookAndTokens, Identity: "cgroup",
	}
	if r.Class != share.Exclusive {
		mps, device := enforcement.MPS(e.slices.HasNamespace(r.holder())), e.devices.sliceByUUID(r.Devices[0])
		t.Memory, t.SMs = enforcement.Memory(mps, r.MemoryLimit), enforcement.SMs(mps, r.Share.SMLimit, device.SMs, device.Profile)
	}
	if r.Class == share.Elastic {
		t.SMs += enforcement.BelowLimit
	}
	if e.MPS.Simulated {
		t.Missing = append(t.Missing, enforcement.Simulated)
	}
	if r.Cgroup == "" {
		t.Identity = "cooperative: user and inherited socket"
		t.Missing = append(t.Missing, "processes of one user can pass for another run's of theirs"+identityHint())
	}
	t.Missing = append(t.Missing, "a program that avoids LD_PRELOAD is not limited in time")
	if r.Class != share.Exclusive {
		t.Missing = append(append(t.Missing, e.mpsBypass(r)), e.slices.Daemons.Limitations(r.Devices[0])...)
	}
	switch {
	case r.Class == share.Exclusive:
	case r.MemoryLimit == 0:
		t.Missing = append(t.Missing, enforcement.MemoryBypass)
	case !e.Groups.confines(r.Cgroup, r.UID):
		t.Missing = append(t.Missing, "a program that its user takes out of its cgroup is not limited by dmem")
	}
	return t
}

// identityHint returns why a run has no cgroup, as the end of a sentence in its enforcement status.
func identityHint() string {
	if os.Geteuid() != 0 {
		return "; an agent that runs as root gives each run a cgroup"
	}
	return "; no cgroup could be made here"
}

// mpsBypass describes how a program can bypass the limits that MPS sets for its run.
func (e *enforcementReporter) mpsBypass(r *run) string {
	if e.slices.HasNamespace(r.holder()) {
		return "a program that names other pipes in its environment has other limits of MPS"
	}
	return enforcement.MPSEnvironment
}

// addObserved returns the status of one of the runs, with notes added to its enforcement status: about each vGPU that a process of the run
// uses without MPS, about memory that the driver counts and the hook does not, about processes that pace themselves, are refused or have no hook, and about kernels that last
// longer than their turns.
func (e *enforcementReporter) addObserved(observed *run, runs []*run) control.Run {
	r := observed.status()
	var neighbours []enforcement.Neighbour
	for _, other := range runs {
		if other != observed && other.Devices[0] == observed.Devices[0] {
			neighbours = append(neighbours, enforcement.Neighbour{Name: "run " + other.ID, Overruns: other.container.Overruns()})
		}
	}
	r.Enforcement.Missing = append(slices.Clone(r.Enforcement.Missing), enforcement.Overruns(observed.container.Overruns(), neighbours)...)
	if r.SelfPaced > 0 {
		r.Enforcement.Missing = append(r.Enforcement.Missing, enforcement.SelfPaced)
	}
	if r.Refused != "" {
		r.Enforcement.Missing = append(r.Enforcement.Missing, enforcement.Refused+r.Refused)
	}
	if r.Unhooked = e.unhooked.reasonOf(r.ID); r.Unhooked != "" {
		r.Enforcement.Missing = append(r.Enforcement.Missing, enforcement.Unhooked("", r.Unhooked))
	}
	if note := e.audit.noteOf(r.ID); note != "" {
		r.Enforcement.Missing = append(r.Enforcement.Missing, note)
	}
	for _, v := range r.VGPUs {
		bare := e.slices.Daemons.NonMPSProcesses(v.Device)
		if slices.ContainsFunc(v.Processes, func(p control.Process) bool { return slices.Contains(bare, p.PID) }) {
			r.Enforcement.Missing = append(r.Enforcement.Missing, enforcement.NonMPSProcess)
		}
	}
	return r
}
