package standalone

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/node/dmem"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// memoryLimiter makes the GPU driver limit the device memory of runs by cgroup (dmem), on shared GPUs that are not in MIG mode.
type memoryLimiter struct {
	*Options
	devices   *deviceSet
	runs      *runStore
	confirmed func(*run, share.Bytes) // called with a limit that the driver has confirmed

	mu        sync.Mutex // guards the following; not held while the driver's program runs
	available bool       // the driver has memory limits
	logged    bool       // that it has none was logged
}

// driver returns the limiter for the cgroups of runs, or an error if the driver does not support memory limits. Only success is remembered:
// after an error the driver is asked again for the next run.
func (m *memoryLimiter) driver() (dmem.Limiter, error) {
	if m.Memory == nil || m.Groups == nil {
		return dmem.Limiter{}, dmem.ErrMissing
	}
	l := dmem.Limiter{Program: m.Memory.Program, Mount: m.Groups.root}
	if m.isAvailable() {
		return l, nil
	}
	err := l.Available(context.Background())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.available = m.available || err == nil
	if errors.Is(err, dmem.ErrMissing) && !m.logged {
		m.Log.Info("device memory is limited by hook and MPS alone", "error", err)
		m.logged = true
	}
	return l, err
}

func (m *memoryLimiter) isAvailable() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.available
}

// limit starts to limit the device memory of a run by the driver, if the run has a cgroup and shares whole GPUs. It does not block: a call
// may hang in the driver, and the enforcement status shows no limit before the driver has confirmed it.
func (m *memoryLimiter) limit(r *run) {
	if r.Class == share.Exclusive || r.Cgroup == "" || r.MemoryLimit > 0 || m.onMIG(r) {
		return
	}
	go retryWithBackoff(m.timing.period, func(again bool) bool { return m.tryLimit(r, again) })
}

// maxBackoff is the longest pause between two attempts to set a memory limit.
const maxBackoff = time.Minute

// retryWithBackoff calls attempt until it returns true. The pauses between calls double from the first one up to maxBackoff.
func retryWithBackoff(first time.Duration, attempt func(again bool) (over bool)) {
	for pause := first; !attempt(pause > first); pause = min(2*pause, maxBackoff) {
		time.Sleep(pause)
	}
}

// tryLimit makes one attempt to set the memory limit of a run. It reports whether no more attempts are needed: the limit is set or cannot be
// set, or the run has ended. Only the failure of the first attempt is logged.
func (m *memoryLimiter) tryLimit(r *run, again bool) (over bool) {
	if again && !m.runs.isRunning(r) {
		return true // its cgroup may belong to another run by now
	}
	limit, err := m.setLimit(r)
	switch {
	case err == nil:
		m.confirmed(r, limit)
		return true
	case errors.Is(err, dmem.ErrMissing) || !m.runs.isRunning(r):
		return true
	case !again:
		m.Log.Error("failed to limit device memory of run", "run", r.ID, "cgroup", r.Cgroup, "error", err)
	}
	return false
}

// setLimit limits the device memory of a run on each of its devices. It returns the largest limit that the driver has confirmed.
func (m *memoryLimiter) setLimit(r *run) (confirmed share.Bytes, all error) {
	l, err := m.driver()
	if err != nil {
		return 0, err
	}
	for _, uuid := range r.Devices {
		told, err := l.Limit(context.Background(), r.Cgroup, uuid, r.Share.Memory+r.contextMemory())
		confirmed, all = max(confirmed, told), errors.Join(all, err)
	}
	return confirmed, all
}

// onMIG reports whether a run uses MIG instances, for which the driver has no memory limits.
func (m *memoryLimiter) onMIG(r *run) bool {
	return slices.ContainsFunc(r.Devices, func(uuid string) bool { return m.devices.sliceByUUID(uuid).Profile != "" })
}
