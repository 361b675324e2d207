package agent

import (
	"context"
	"os"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/kubelet"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// guard finds processes that use a slice without a share that permits it, and reports or kills them. Only the findings are shared with other
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
	audit     *memoryAudit
	own       cgroup.Container     // the agent's own container; zero if it is in none
	pods      []*v1.Pod            // as listed when an unknown container was last seen
	elsewhere []kubelet.Allocation // allocations of other device plugins, as the kubelet listed them last
	processes processLister

	mu    sync.Mutex // guards the following
	found []watchdog.Finding
}

const (
	kubeletTimeout = time.Second
	lingerPeriods  = 5 // number of watch periods for which a slice counts as used after its last unmanaged process was seen
	repeatEvents   = 10 * time.Minute
)

func newGuard(a *Agent, publish func()) *guard {
	k := a.Config.Kubernetes
	linger := lingerPeriods * k.WatchPeriod.Duration
	own, _ := containerOf(os.Getpid()) // fails outside of containers
	watch := watchdog.Config{
		Grace: k.HookGrace.Duration, Linger: linger, Retry: linger, Repeat: repeatEvents, Kill: k.UnmanagedProcesses == config.EndUnmanaged,
	}
	return &guard{
		Options: a.Options, metrics: a.metrics, slices: a.slices, grants: a.granter.grants, devices: a.devices, memory: a.memory, publish: publish,
		own: own, watch: watchdog.New(watch),
		audit:     &memoryAudit{slices: a.slices, grants: a.granter.grants, watch: watchdog.NewMemoryWatch(watch)},
		processes: processLister{Options: a.Options, metrics: a.metrics, list: asyncCall[[]gpu.Process]{call: a.Source.Processes}},
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
	if g.Config.Kubernetes.UnmanagedProcesses != config.IgnoreUnmanaged {
		ledgers := g.audit.ledgers()
		if processes, ok := g.processes.current(ctx); ok {
			if !g.processes.failing { // an incomplete list would show used devices as unused
				g.slices.Daemons.ObserveProcesses(g.slices.withSliceUUIDs(processes))
			}
			known := g.identifyProcesses(ctx, processes)
			found := g.watch.Observe(time.Now(), known, g.grants.watchdogGrants())
			g.handleFindings(ctx, append(found, g.audit.observe(time.Now(), ledgers, known)...))
			g.memory.requestLimits(known)
		}
	}
	g.devices.setUsed(g.sliceUsers())
	if g.audit.peaks.risen(g.slices.Tokens.Snapshot()) {
		g.publish()
	}
}
