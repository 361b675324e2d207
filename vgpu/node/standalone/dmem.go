package standalone

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/gshare-dev/gshare/vgpu/node/dmem"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// limiter gives the driver's memory limits for the cgroups of runs, once it is known that there are such; else the error says why not.
func (n *Node) limiter() func() (dmem.Limiter, error) {
	return sync.OnceValues(func() (dmem.Limiter, error) {
		if n.Memory == nil || n.Groups == nil {
			return dmem.Limiter{}, dmem.ErrMissing
		}
		l := dmem.Limiter{Program: n.Memory.Program, Mount: n.Groups.root}
		err := l.Available(context.Background())
		if err != nil {
			n.Log.Info("device memory is limited by hook and MPS alone", "err", err)
		}
		return l, err
	})
}

// limitMemory lets the driver limit the device memory of a run that shares its devices and has a cgroup of its own. Nobody waits for
// it: a call that hangs in the driver cannot be ended, and until the driver has confirmed the limit nothing is claimed.
func (n *Node) limitMemory(r *run) {
	if r.Class == share.Exclusive || r.Group == "" || r.Limited > 0 || n.divided(r) {
		return
	}
	group, devices, limit := r.Group, slices.Clone(r.Devices), r.Request.Containers[0].Share.Memory+mps.ContextMemory
	go func() {
		l, err := n.limits()
		if err != nil {
			return
		}
		confirmed, err := limitEach(l, group, devices, limit)
		if err != nil {
			n.Log.Error("limit the device memory of a run", "run", r.ID, "cgroup", group, "err", err)
			return
		}
		n.confirm(r, confirmed)
	}()
}

// limitEach limits what a cgroup has of each device, and gives the largest of the limits that the driver tells.
func limitEach(l dmem.Limiter, group string, devices []string, limit share.Bytes) (confirmed share.Bytes, all error) {
	for _, uuid := range devices {
		told, err := l.Limit(context.Background(), group, uuid, limit)
		confirmed, all = max(confirmed, told), errors.Join(all, err)
	}
	return confirmed, all
}

// confirm notes what the driver keeps a run to.
func (n *Node) confirm(r *run, limit share.Bytes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || !slices.Contains(n.runs, r) {
		return
	}
	r.Limited = limit
	r.Truth = n.truthOf(r)
	if err := n.save(r); err != nil {
		n.Log.Error("note the memory limit of a run", "run", r.ID, "err", err)
	}
}

// divided says that a run is in MIG instances, for which the driver has no such limits.
func (n *Node) divided(r *run) bool {
	return slices.ContainsFunc(r.picks(n.empty), func(p packing.Pick) bool { return n.empty.Slices[p.Slice].Profile != "" })
}

// memoryOf says by what the device memory of a run that shares is limited, the strongest first.
func (n *Node) memoryOf(r *run) string {
	by := "hook, " + n.mpsOf(r)
	if r.Limited > 0 {
		return fmt.Sprintf("dmem (%d MiB), %s", r.Limited/share.MiB, by)
	}
	return by
}
