package standalone

import (
	"os"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// enforcementOf returns how the share of a run is enforced, and which gaps there are.
func (n *Node) enforcementOf(r *run) control.EnforcementStatus {
	t := control.EnforcementStatus{
		Memory: "hook", SMs: "alone on the device", Time: "hook and token server", Identity: "cgroup",
	}
	switch r.Class {
	case share.MPS:
		t.Memory, t.SMs = n.memoryEnforcement(r), n.smEnforcement(r)
	case share.Elastic:
		t.Memory, t.SMs = n.memoryEnforcement(r), n.smEnforcement(r)+" at the limit, hook and token server below it"
	}
	if n.MPS.Simulated {
		t.Missing = append(t.Missing, "the devices are simulated")
	}
	if r.Cgroup == "" {
		t.Identity = "cooperative: user and inherited socket"
		t.Missing = append(t.Missing, "processes of one user can pass for another run's of theirs"+n.identityHint())
	}
	t.Missing = append(t.Missing, "a program that avoids LD_PRELOAD is not limited in time")
	if r.Class != share.Exclusive {
		t.Missing = append(t.Missing, n.mpsLoophole(r))
	}
	switch {
	case r.Class == share.Exclusive:
	case r.MemoryLimit == 0:
		t.Missing = append(t.Missing, "a program that avoids hook and MPS is not limited in memory")
	case !n.Groups.holds(r.Cgroup, r.UID):
		t.Missing = append(t.Missing, "a program that its user takes out of its cgroup is not limited by dmem")
	}
	return t
}

// identityHint returns why processes are not identified by cgroup, as the end of a sentence.
func (n *Node) identityHint() string {
	if os.Geteuid() != 0 {
		return "; an agent that runs as root gives each run a cgroup"
	}
	return "; no cgroup could be made here"
}

// grantOf returns the grant that the run's process receives: its environment and how it identifies itself.
func (n *Node) grantOf(r *run) *control.Grant {
	environment := []string{"GSHARE_DIR=" + n.dirOf(r.ID)}
	devices := ""
	for i, uuid := range r.Devices {
		if i > 0 {
			devices += ","
		}
		devices += uuid
	}
	environment = append(environment, "CUDA_VISIBLE_DEVICES="+devices)
	if r.Class != share.Exclusive {
		environment = append(environment, mps.ClientEnvironment(r.pipe, share.Share(r.Share))...)
	}
	if mps.HasLowPriority(r.Class, r.Priority) {
		environment = append(environment, mps.LowPriorityVariable)
	}
	return &control.Grant{ID: r.ID, Dir: n.dirOf(r.ID), Environment: environment, Inherit: r.Cgroup == "", Enforcement: r.Enforcement}
}
