package agent

import (
	"context"
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// open says why the container must not start now. Where CUDA does not find the daemon, it runs without MPS and says nothing.
func (a *Agent) open(g *grant.Grant) *grant.Refusal {
	if refusal := a.makeInstances(g); refusal != nil {
		return refusal
	}
	if g.Class() == share.Exclusive {
		return nil
	}
	if err := a.mps.Open(a.uuid(g.VGPUs[0].Slice)); err != nil {
		return grant.Shut(err)
	}
	return nil
}

// hold keeps what the grants need. The caller holds the lock.
func (a *Agent) hold() {
	a.holdInstances()
	a.holdMPS()
}

// holdMPS keeps the daemons of the slices that are shared, and ends those of others, so that the next ones start without what
// the last ones left. The caller holds the lock.
func (a *Agent) holdMPS() {
	var shared []string // by what MPS calls them
	for _, g := range a.book.All() {
		if uuid := a.uuid(g.VGPUs[0].Slice); uuid != "" && g.Class() != share.Exclusive {
			shared = append(shared, uuid)
		}
	}
	slices.Sort(shared)
	a.mps.Hold(slices.Compact(shared))
}

// capOf says how many SMs MPS gives the container: the hardware rounds.
func (a *Agent) capOf(g *grant.Grant) string {
	v := g.VGPUs[0]
	for _, s := range a.inventory.Slices() {
		if s.ID == v.Slice {
			return fmt.Sprintf("MPS, %d of %d SMs", supervisor.Cap(v.Share.SMLimit, s.SMs), s.SMs) + inside(s.Profile)
		}
	}
	return "MPS"
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
	for _, pid := range a.mps.Bare(a.uuid(g.VGPUs[0].Slice)) {
		if c, err := a.ContainerOf(pid); err == nil && c.PodUID == string(g.UID) {
			return []string{"a process runs without MPS, and its SMs are not limited"}
		}
	}
	return nil
}

// tellFeatures says once what this machine's MPS has beyond what is used. Nobody waits for it.
func (a *Agent) tellFeatures(ctx context.Context) {
	if a.MPS.Runs() {
		f := a.MPS.Features(ctx)
		a.Log.Info("MPS has features that are not used", "static partitions", f.StaticPartitions, "namespaces", f.Namespaces)
	}
}

// endClient ends the CUDA work of a process before the process is killed.
func (a *Agent) endClient(slice string, pid int) error {
	if !a.MPS.Runs() {
		return nil
	}
	slice = a.uuid(slice)
	if _, kept := a.mps.Slices()[slice]; !kept {
		return nil
	}
	return a.mps.EndClients(slice, func(p int) bool { return p == pid })
}
