package agent

import (
	"context"
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// open says why the container must not start now, or by which pipes it comes to MPS. Where CUDA does not find the daemon, it runs without
// MPS and says nothing.
func (a *Agent) open(g *grant.Grant) (pipe string, _ *grant.Refusal) {
	if refusal := a.makeInstances(g); refusal != nil {
		return "", refusal
	}
	if g.Class() == share.Exclusive || !a.MPS.Enabled() {
		return "", nil
	}
	m := a.memberOf(g)
	if m.Slice == "" {
		return "", grant.Shut(errInstance)
	}
	pipe, err := a.mps.Open(m)
	if err != nil {
		return "", grant.Shut(err)
	}
	return pipe, nil
}

// memberOf is what a container is to MPS.
func (a *Agent) memberOf(g *grant.Grant) mps.Member {
	v := g.VGPUs[0]
	return mps.NewMember(a.uuid(v.Slice), g.ID(), v.Share, mps.HasLowPriority(v.Class, v.Priority))
}

// hold keeps what the grants need. The caller holds the lock.
func (a *Agent) hold() {
	a.holdInstances()
	a.holdMPS()
}

// holdMPS keeps the daemons of the slices that are shared, and ends those of others, so that the next ones start without what
// the last ones left. The caller holds the lock.
func (a *Agent) holdMPS() {
	var members []mps.Member
	for _, g := range a.book.All() {
		if m := a.memberOf(&g); m.Slice != "" && g.Class() != share.Exclusive {
			members = append(members, m)
		}
	}
	a.mps.SetMembers(members)
}

// capOf says how many SMs MPS gives the container: the hardware rounds.
func (a *Agent) capOf(g *grant.Grant) string {
	v := g.VGPUs[0]
	for _, s := range a.inventory.Slices() {
		if s.ID == v.Slice {
			return fmt.Sprintf("%s, %d of %d SMs", a.mpsOf(g), supervisor.Cap(v.Share.SMLimit, s.SMs), s.SMs) + inside(s.Profile)
		}
	}
	return a.mpsOf(g)
}

// mpsOf names MPS by how it holds a container.
func (a *Agent) mpsOf(g *grant.Grant) string {
	if a.binds(g) {
		return "MPS namespace"
	}
	return "MPS"
}

// binds says that the container's processes cannot loosen what MPS holds them to.
func (a *Agent) binds(g *grant.Grant) bool {
	return a.mps.HasNamespace(a.uuid(g.VGPUs[0].Slice), g.ID())
}

// loose says what a program can do about the limits of MPS.
func (a *Agent) loose(g *grant.Grant) (missing []string) {
	_, dmem := a.confirmed[g.ID()]
	switch {
	case !a.binds(g):
		missing = append(missing, "a program that changes its environment loosens the limits of MPS")
		if !dmem {
			missing = append(missing, "a program that avoids hook and MPS is not limited in memory")
		}
	case !dmem:
		missing = append(missing, "a program that avoids the hook can drop MPS' limit of memory by its environment")
	}
	return missing
}

// inside adds to what enforces a share that a MIG instance stands around it: what is in it is out of reach of the other
// instances, whatever their programs do.
func inside(profile string) string {
	if profile == "" {
		return ""
	}
	return ", inside of MIG " + profile
}

// profileOf is the MIG profile of the slices of a container; empty for whole GPUs. The caller holds the lock.
func (a *Agent) profileOf(g *grant.Grant) string {
	for _, s := range a.inventory.Slices() {
		if s.ID == g.VGPUs[0].Slice {
			return s.Profile
		}
	}
	return ""
}

// bare says that processes of the container run without MPS. The caller holds the lock.
func (a *Agent) bare(g *grant.Grant) []string {
	for _, pid := range a.mps.NonMPSProcesses(a.uuid(g.VGPUs[0].Slice)) {
		if c, err := a.ContainerOf(pid); err == nil && c.PodUID == string(g.UID) {
			return []string{"a process runs without MPS, and its SMs are not limited"}
		}
	}
	return nil
}

// tellFeatures says once what this machine's MPS has beyond what is used. Nobody waits for it.
func (a *Agent) tellFeatures(ctx context.Context) {
	if a.MPS.Enabled() {
		f, err := a.MPS.Features(ctx)
		a.Log.Info("features of MPS", "namespaces", f.Namespaces, "static partitions (not used)", f.StaticPartitions, "err", err)
	}
}

// endClient ends the CUDA work of a process before the process is killed.
func (a *Agent) endClient(ctx context.Context, slice string, pid int) error {
	if !a.MPS.Enabled() {
		return nil
	}
	slice = a.uuid(slice)
	if _, kept := a.mps.ClosedReasons()[slice]; !kept {
		return nil
	}
	return a.mps.TerminateClients(ctx, slice, func(p int) bool { return p == pid })
}
