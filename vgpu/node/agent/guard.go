package agent

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/kubelet"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// guard finds processes that use a slice without a share that allows it, and reports or kills them. Only the findings are shared with other
// goroutines.
type guard struct {
	*Options
	metrics *metrics
	slices  *sliceRuntime
	grants  *grantStore
	devices *deviceMonitor
	memory  *memoryLimiter
	publish func() // requests publication

	watch     *watchdog.Watch
	own       cgroup.Container         // the agent's own; zero outside of containers
	pods      []*v1.Pod                // as listed when an unknown container was last seen
	elsewhere []kubelet.Allocation     // devices of other device plugins, as the kubelet listed them last
	list      asyncCall[[]gpu.Process] // at the driver
	failing   bool                     // the last list failed

	mu    sync.Mutex // guards the following
	found []watchdog.Finding
}

const (
	kubeletTimeout = time.Second
	lingerPeriods  = 5 // watch periods that a slice stays used after its last stranger was seen
	repeatEvents   = 10 * time.Minute
)

func newGuard(a *Agent, publish func()) *guard {
	k := a.Config.Kubernetes
	linger := lingerPeriods * k.WatchPeriod.Duration
	own, _ := containerOf(os.Getpid()) // an error: outside of containers
	return &guard{
		Options: a.Options, metrics: a.metrics, slices: a.slices, grants: a.granter.grants, devices: a.devices, memory: a.memory, publish: publish,
		own: own, list: asyncCall[[]gpu.Process]{call: a.Source.Processes},
		watch: watchdog.New(watchdog.Config{
			Grace: k.HookGrace.Duration, Linger: linger, Retry: linger, Repeat: repeatEvents, Kill: k.Strangers == config.EndStrangers,
		}),
	}
}

// findings returns the violations that the last observation found.
func (g *guard) findings() []watchdog.Finding {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.found
}

// loop observes the slices periodically. It must not start before the grants of earlier agents are restored, or their containers would be
// reported as having no share.
func (g *guard) loop(ctx context.Context) {
	for ; ctx.Err() == nil; sleep(ctx, g.Config.Kubernetes.WatchPeriod.Duration) {
		g.observe(ctx)
	}
}

// observe compares the processes on the slices with the grants once, and handles the violations. It lists the processes before the grants:
// a grant always exists before its processes start.
func (g *guard) observe(ctx context.Context) {
	short, cancel := context.WithTimeout(ctx, kubeletTimeout)
	defer cancel()
	if elsewhere, err := g.Records.AllocatedElsewhere(short); err == nil {
		g.elsewhere = elsewhere
	}
	if g.Config.Kubernetes.Strangers != config.IgnoreStrangers {
		if processes, ok := g.listProcesses(ctx); ok {
			if !g.failing { // an incomplete list would show devices without processes
				g.slices.mps.ObserveProcesses(g.slices.withSliceUUIDs(processes))
			}
			known := g.identifyProcesses(ctx, processes)
			g.handleFindings(ctx, g.watch.Observe(time.Now(), known, g.grants.watchdogGrants()))
			g.memory.requestLimits(known)
		}
	}
	g.devices.setUsed(g.sliceUsers())
}

// listProcesses returns the processes that use the GPUs. The list may be incomplete if the driver reports an error; ok is false if no
// process is known at all.
func (g *guard) listProcesses(ctx context.Context) (processes []gpu.Process, ok bool) {
	processes, err := g.list.Await(ctx, g.Config.Kubernetes.WatchPeriod.Duration)
	switch {
	case ctx.Err() != nil:
		return nil, false
	case errors.Is(err, gpu.ErrNoGPU):
		err = nil // and no process
	}
	g.metrics.countList(err)
	if err != nil && !g.failing {
		g.Log.Error("failed to list the processes on the devices", "error", err)
	}
	g.failing = err != nil
	return processes, err == nil || len(processes) > 0
}
