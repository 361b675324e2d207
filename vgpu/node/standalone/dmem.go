package standalone

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/dmem"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// driverLimits is what is known of the driver's memory limits.
type driverLimits struct {
	mu    sync.Mutex // held while the driver is asked
	there bool       // there are such
	told  bool       // that there are none
}

// limits gives the driver's memory limits for the cgroups of runs; else the error says why not. That there are such stays true; that
// there are none is asked again for the next run.
func (n *Node) limits() (dmem.Limiter, error) {
	if n.Memory == nil || n.Groups == nil {
		return dmem.Limiter{}, dmem.ErrMissing
	}
	d, l := &n.dmem, dmem.Limiter{Program: n.Memory.Program, Mount: n.Groups.root}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.there {
		return l, nil
	}
	err := l.Available(context.Background())
	d.there = err == nil
	if errors.Is(err, dmem.ErrMissing) && !d.told {
		n.Log.Info("device memory is limited by hook and MPS alone", "err", err)
		d.told = true
	}
	return l, err
}

// limitMemory lets the driver limit the device memory of a run that shares its devices and has a cgroup of its own. Nobody waits for
// it: a call that hangs in the driver cannot be ended, and until the driver has confirmed the limit nothing is claimed.
func (n *Node) limitMemory(r *run) {
	if r.Class == share.Exclusive || r.Group == "" || r.Limited > 0 || n.divided(r) {
		return
	}
	go patiently(func(again bool) bool { return n.askForLimit(r, again) })
}

// longestPause is that between two questions to a driver which goes on refusing.
const longestPause = time.Minute

// patiently asks until it is over, after longer and longer pauses.
func patiently(ask func(again bool) (over bool)) {
	for pause := processPeriod; !ask(pause > processPeriod); pause = min(2*pause, longestPause) {
		time.Sleep(pause)
	}
}

// askForLimit asks the driver to limit a run. It is over when it has confirmed that, or the run has ended. What it reads of the run never
// changes. Only the first refusal is told: those of a driver may differ in words.
func (n *Node) askForLimit(r *run, again bool) (over bool) {
	if again && !n.has(r) {
		return true // another may have its cgroup
	}
	limit, err := n.limit(r)
	switch {
	case err == nil:
		n.confirm(r, limit)
		return true
	case errors.Is(err, dmem.ErrMissing) || !n.has(r):
		return true
	case !again:
		n.Log.Error("limit the device memory of a run", "run", r.ID, "cgroup", r.Group, "err", err)
	}
	return false
}

// limit limits what a run has of each device, and gives the largest of the limits that the driver tells.
func (n *Node) limit(r *run) (confirmed share.Bytes, all error) {
	l, err := n.limits()
	if err != nil {
		return 0, err
	}
	for _, uuid := range r.Devices {
		told, err := l.Limit(context.Background(), r.Group, uuid, r.Share.Memory+mps.ContextMemory)
		confirmed, all = max(confirmed, told), errors.Join(all, err)
	}
	return confirmed, all
}

// has says that a run has not ended, and that the node goes on.
func (n *Node) has(r *run) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.closed && slices.Contains(n.runs, r)
}

// confirm notes what the driver keeps a run to.
func (n *Node) confirm(r *run, limit share.Bytes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || !slices.Contains(n.runs, r) {
		return
	}
	r.Limited = limit
	r.Enforcement = n.enforcementOf(r)
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
