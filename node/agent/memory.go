package agent

import (
	"context"
	"errors"
	"time"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// memoryLimiter makes the GPU driver limit the device memory of containers by cgroup (dmem), on shared GPUs that are not in MIG mode.
type memoryLimiter struct {
	*Options
	metrics  *metrics
	grants   *grantStore
	devices  *deviceMonitor
	publish  func() // requests publication
	requests chan memoryRequest
}

// memoryRequest is a queued request to limit the device memory of one container.
type memoryRequest struct {
	grant, container string // IDs
	cgroup, gpu      string
	limit            share.Bytes
}

// driverLimit is a memory limit that the driver has confirmed, and the ID of the container for which it holds. A grant outlives its
// container: a restarted container needs a new limit.
type driverLimit struct {
	container string // ID; empty: no limit is confirmed
	memory    share.Bytes
}

func (l driverLimit) isSet() bool { return l.container != "" }

const (
	memoryQueue = 64 // requests that may wait for the driver's program
	// memoryTimeout is how long the agent waits for the driver's program that sets memory limits. It is longer than the program's own time
	// limit. A program that hangs in the driver cannot be killed.
	memoryTimeout = time.Minute
)

func newMemoryLimiter(o *Options, m *metrics, s *grantStore, d *deviceMonitor, publish func()) *memoryLimiter {
	return &memoryLimiter{Options: o, metrics: m, grants: s, devices: d, publish: publish, requests: make(chan memoryRequest, memoryQueue)}
}

// cgroupPathOf returns the cgroup path of the container in which a process runs.
func cgroupPathOf(pid int) (string, error) {
	m, err := cgroup.Of(pid)
	if err != nil {
		return "", err
	}
	return m.ContainerPath()
}

// loop applies queued memory limits one after another, until the context ends or the driver's program hangs.
func (l *memoryLimiter) loop(ctx context.Context) {
	if l.Memory == nil {
		return
	}
	probe := asyncCall[struct{}]{call: func() (none struct{}, err error) { return none, l.Memory.Available(ctx) }}
	_, err := probe.Await(ctx, memoryTimeout)
	l.metrics.dmem.Store(err == nil)
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case r := <-l.requests:
			err = l.applyLimit(ctx, r)
		}
	}
	l.metrics.dmem.Store(false)
	l.Log.Info("device memory is limited by hook and MPS alone", "error", err)
}

// applyLimit makes the driver limit the memory of one container. It returns an error only if the driver's program hangs. A limit that the
// driver refuses is logged, and requested again when the guard next sees the container.
func (l *memoryLimiter) applyLimit(ctx context.Context, r memoryRequest) error {
	if l.limitOf(r.grant).container == r.container {
		return nil
	}
	call := asyncCall[share.Bytes]{call: func() (share.Bytes, error) { return l.Memory.Limit(ctx, r.cgroup, r.gpu, r.limit) }}
	memory, err := call.Await(ctx, memoryTimeout)
	if errors.Is(err, errHung) || ctx.Err() != nil {
		return err
	}
	if err != nil {
		l.Log.Error("failed to limit the device memory of a container", "grant", r.grant, "cgroup", r.cgroup, "error", err)
		return nil
	}
	if l.grants.setMemoryLimit(r.grant, driverLimit{r.container, memory}) {
		l.publish()
	}
	return nil
}

// limitOf returns the confirmed memory limit of a grant's container; zero if there is none.
func (l *memoryLimiter) limitOf(grant string) driverLimit {
	s, _ := l.grants.serviceOf(grant)
	return s.memoryLimit
}

// requestLimits queues memory limits for those containers of the processes that have none yet. It drops requests for which the queue has no
// room; the next observation of the guard repeats them.
func (l *memoryLimiter) requestLimits(processes []watchdog.Process) {
	if !l.metrics.dmem.Load() {
		return
	}
	for _, p := range processes {
		if r, ok := l.requestFor(p); ok {
			select {
			case l.requests <- r:
			default:
			}
		}
	}
}

// requestFor returns the request that limits the memory of a process's container. ok is false if the driver cannot limit it, or already
// does.
func (l *memoryLimiter) requestFor(p watchdog.Process) (r memoryRequest, ok bool) {
	c, err := l.ContainerOf(p.PID)
	if err != nil {
		return r, false
	}
	path, err := l.PathOf(p.PID)
	if err != nil {
		return r, false
	}
	for _, g := range l.grants.onSlice(p.Slice) {
		if string(g.UID) != c.PodUID || g.Container != p.Container || g.Class() == share.Exclusive ||
			l.devices.profileOf(&g) != "" || l.limitOf(g.ID()).container == c.ID {
			continue
		}
		s := g.VGPUs[0].Share
		return memoryRequest{g.ID(), c.ID, path, p.Slice, s.Memory + mps.ContextMemory(s.SMLimit)}, true
	}
	return r, false
}
