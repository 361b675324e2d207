package standalone

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/dmem"
	"github.com/gshare-dev/gshare/vgpu/node/enforcement"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// limiterState is what is known about the memory limits of the driver.
type limiterState struct {
	mu        sync.Mutex // held while the driver is asked
	available bool       // the driver has memory limits
	logged    bool       // that it has none
}

// driverLimiter returns a limiter for the cgroups of runs, or why the driver has no memory limits. Only a positive answer of the driver is
// remembered: after a refusal it is asked again for the next run.
func (n *Node) driverLimiter() (dmem.Limiter, error) {
	if n.Memory == nil || n.Groups == nil {
		return dmem.Limiter{}, dmem.ErrMissing
	}
	d, l := &n.dmem, dmem.Limiter{Program: n.Memory.Program, Mount: n.Groups.root}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.available {
		return l, nil
	}
	err := l.Available(context.Background())
	d.available = err == nil
	if errors.Is(err, dmem.ErrMissing) && !d.logged {
		n.Log.Info("device memory is limited by hook and MPS alone", "error", err)
		d.logged = true
	}
	return l, err
}

// limitMemory starts to limit the device memory of a run by the driver, if the run shares its devices and has a cgroup. It does not
// block: a call may hang in the driver, and the enforcement status claims no limit before the driver has confirmed it.
func (n *Node) limitMemory(r *run) {
	if r.Class == share.Exclusive || r.Cgroup == "" || r.MemoryLimit > 0 || n.onMIG(r) {
		return
	}
	go retryWithBackoff(n.timing.period, func(again bool) bool { return n.tryMemoryLimit(r, again) })
}

// maxBackoff is the longest pause between two attempts to set a limit.
const maxBackoff = time.Minute

// retryWithBackoff calls attempt until it returns true, with pauses that double from the first one up to maxBackoff.
func retryWithBackoff(first time.Duration, attempt func(again bool) (over bool)) {
	for pause := first; !attempt(pause > first); pause = min(2*pause, maxBackoff) {
		time.Sleep(pause)
	}
}

// tryMemoryLimit makes one attempt to limit a run, and reports whether it was the last: the limit is set, cannot be set, or the run has
// ended. Only the first failure is logged.
func (n *Node) tryMemoryLimit(r *run, again bool) (over bool) {
	if again && !n.running(r) {
		return true // its cgroup may be another run's by now
	}
	limit, err := n.setMemoryLimit(r)
	switch {
	case err == nil:
		n.recordMemoryLimit(r, limit)
		return true
	case errors.Is(err, dmem.ErrMissing) || !n.running(r):
		return true
	case !again:
		n.Log.Error("failed to limit device memory of run", "run", r.ID, "cgroup", r.Cgroup, "error", err)
	}
	return false
}

// setMemoryLimit limits the memory of a run on each device, and returns the largest limit that the driver has confirmed.
func (n *Node) setMemoryLimit(r *run) (confirmed share.Bytes, all error) {
	l, err := n.driverLimiter()
	if err != nil {
		return 0, err
	}
	for _, uuid := range r.Devices {
		told, err := l.Limit(context.Background(), r.Cgroup, uuid, r.Share.Memory+mps.ContextMemory)
		confirmed, all = max(confirmed, told), errors.Join(all, err)
	}
	return confirmed, all
}

// running reports whether a run has not ended, and the node is not closed.
func (n *Node) running(r *run) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.closed && slices.Contains(n.runs, r)
}

// recordMemoryLimit saves the limit that the driver has confirmed for a run.
func (n *Node) recordMemoryLimit(r *run, limit share.Bytes) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed || !slices.Contains(n.runs, r) {
		return
	}
	r.MemoryLimit = limit
	r.Enforcement = n.enforcementOf(r)
	if err := n.save(r); err != nil {
		n.Log.Error("failed to save run", "run", r.ID, "error", err)
	}
}

// onMIG reports whether a run is on MIG instances, for which the driver has no memory limits.
func (n *Node) onMIG(r *run) bool {
	return slices.ContainsFunc(r.picks(n.empty), func(p packing.Pick) bool { return n.empty.Slices[p.Slice].Profile != "" })
}

// memoryEnforcement returns by what the device memory of a run on shared devices is limited, the strongest first.
func (n *Node) memoryEnforcement(r *run) string {
	return enforcement.Memory(n.mpsName(r), r.MemoryLimit)
}
