package agent

import (
	"context"
	"errors"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// memoryLimiter lets the driver limit the device memory of containers on shared GPUs by their cgroups (dmem). It does not work inside
// of MIG instances.
type memoryLimiter struct {
	*Options
	metrics  *metrics
	grants   *grantStore
	devices  *deviceMonitor
	publish  func() // requests publication
	requests chan memoryRequest
}

// memoryRequest is a request to limit the device memory of a container.
type memoryRequest struct {
	grant, container string // IDs
	cgroup, gpu      string
	limit            share.Bytes
}

// driverLimit is a memory limit that the driver has confirmed, and the container that it was set for: that of a grant is replaced when
// it restarts.
type driverLimit struct {
	container string // ID; empty: no limit is confirmed
	memory    share.Bytes
}

// set reports whether a limit is confirmed.
func (l driverLimit) set() bool { return l.container != "" }

const (
	memoryQueue = 64 // requests that wait for the driver's program
	// memoryTimeout is longer than the driver's program may take. One that hangs in the driver does not even end when it is killed.
	memoryTimeout = time.Minute
)

func newMemoryLimiter(o *Options, m *metrics, s *grantStore, d *deviceMonitor, publish func()) *memoryLimiter {
	return &memoryLimiter{Options: o, metrics: m, grants: s, devices: d, publish: publish, requests: make(chan memoryRequest, memoryQueue)}
}

// cgroupPathOf returns the cgroup path of the container of a process.
func cgroupPathOf(pid int) (string, error) {
	m, err := cgroup.Of(pid)
	if err != nil {
		return "", err
	}
	return m.ContainerPath()
}

// loop serves requests one after another, as long as the driver's program answers.
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
			err = l.limit(ctx, r)
		}
	}
	l.metrics.dmem.Store(false)
	l.Log.Info("device memory is limited by hook and MPS alone", "error", err)
}

// limit serves one request. It returns an error only where no further request can be served; what the driver refuses is requested
// again when the guard sees the container again.
func (l *memoryLimiter) limit(ctx context.Context, r memoryRequest) error {
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

// limitOf returns the confirmed limit of a grant's container.
func (l *memoryLimiter) limitOf(grant string) driverLimit {
	s, _ := l.grants.serviceOf(grant)
	return s.memoryLimit
}

// request requests the limits of the containers of these processes, where they have none. Requests that do not fit the queue are
// dropped; the guard repeats them.
func (l *memoryLimiter) request(processes []watchdog.Process) {
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

// requestFor returns the request for the container of a process; false where the driver cannot limit it, or does already.
func (l *memoryLimiter) requestFor(p watchdog.Process) (r memoryRequest, ok bool) {
	c, err := l.ContainerOf(p.PID)
	if err != nil {
		return r, false
	}
	path, err := l.PathOf(p.PID)
	if err != nil {
		return r, false
	}
	for _, g := range l.grants.on(p.Slice) {
		if string(g.UID) != c.PodUID || g.Container != p.Container || g.Class() == share.Exclusive ||
			l.devices.profileOf(&g) != "" || l.limitOf(g.ID()).container == c.ID {
			continue
		}
		return memoryRequest{g.ID(), c.ID, path, p.Slice, g.VGPUs[0].Share.Memory + mps.ContextMemory}, true
	}
	return r, false
}
