// Package agent is the node agent of a cluster. It gives containers the shares that the scheduler placed for them, and releases the
// shares when the containers are gone.
//
// Each grant is written to disk before it takes effect, in a directory for each container, and the next agent restores it. All
// other state is read again at the start: the owners of tickets from the kubelet, placements from pods, devices from the driver.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/deviceplugin"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/cdi"
	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/dmem"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/killpoint"
	"github.com/gshare-dev/gshare/vgpu/node/kubelet"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/node/partition/ondemand"
	"github.com/gshare-dev/gshare/vgpu/node/ticket"
)

// Options configures an agent. Its parts share one copy and do not change it.
type Options struct {
	Config config.Configuration // with defaults, directory and node name set
	Source gpu.Source

	OnDemand *ondemand.Source // the Source, where it creates MIG instances on demand; nil: none are created
	MPS      mps.Daemons
	Memory   *dmem.Limiter // sets the driver's memory limits; nil: they are not used
	Pods     *kubelet.Pods
	Records  *kubelet.Records
	Cluster  Cluster
	Log      *slog.Logger

	// ContainerOf returns the container of a process. The default reads the kernel's cgroups; tests assign processes themselves.
	ContainerOf func(pid int) (cgroup.Container, error)

	// PathOf returns the cgroup path of the container of a process. The default reads the kernel's cgroups.
	PathOf func(pid int) (string, error)

	// Capabilities is the driver's list of the device nodes of MIG instances. The default is the real driver's; tests have their own.
	Capabilities cdi.Capabilities

	// Linger blocks until the pods that were bound before the node was closed have had time to start. The default returns at once.
	Linger func(context.Context)
}

// killPoint is called between the steps that must survive a crash. Tests of this package replace it.
var killPoint = killpoint.At

// setDefaults sets the options that have a default and are not set.
func (o *Options) setDefaults() {
	if o.Linger == nil {
		o.Linger = func(context.Context) {}
	}
	if o.ContainerOf == nil {
		o.ContainerOf = containerOf
	}
	if o.PathOf == nil {
		o.PathOf = cgroupPathOf
	}
	if o.Capabilities == "" {
		o.Capabilities = cdi.DriverCapabilities
	}
}

// Agent is the agent of one node. Each part guards its state by a lock of its own, which is never held over disk, driver or daemon
// I/O. A part may lock those that are listed before it while it holds its own.
type Agent struct {
	*Options
	metrics     *metrics
	slices      *sliceRuntime
	granter     *granter
	devices     *deviceMonitor
	memory      *memoryLimiter
	guard       *guard
	enforcement *enforcementReporter
	publisher   *publisher
}

// New returns an agent that has read nothing yet.
func New(o Options) (*Agent, error) {
	o.setDefaults()
	requests := make(chan struct{}, 1)
	publish := func() { signal(requests) }
	a := &Agent{Options: &o, metrics: newMetrics()}
	var err error
	if a.slices, err = newSliceRuntime(&o, publish); err != nil {
		return nil, err
	}
	a.granter = newGranter(&o, a.metrics, a.slices, publish)
	a.devices = newDeviceMonitor(&o, a.slices, a.granter.grants, publish)
	a.memory = newMemoryLimiter(&o, a.metrics, a.granter.grants, a.devices, publish)
	a.guard = newGuard(a, publish)
	a.enforcement = &enforcementReporter{Options: &o, slices: a.slices, grants: a.granter.grants, devices: a.devices, guard: a.guard}
	a.publisher = &publisher{
		Options: &o, metrics: a.metrics, devices: a.devices, grants: a.granter.grants, enforcement: a.enforcement,
		requests: requests, closed: make(chan struct{}, 1),
	}
	return a, nil
}

// startTimeout bounds how long the start waits for the API server and for GPUs with MIG instances on demand. It goes on without
// them: the kubelet fails pods whose devices are not registered when it admits them.
const startTimeout = 2 * time.Second

// Run serves the node until the context ends and the node is closed. Grants stay in force for the next agent.
func (a *Agent) Run(ctx context.Context) error {
	if err := os.MkdirAll(a.Config.Directory, 0o755); err != nil {
		return err
	}
	unlock, err := lockNode(ctx, filepath.Join(a.Config.Directory, "agent.lock"))
	if err != nil {
		return err
	}
	defer unlock()
	if err := a.granter.restore(); err != nil {
		return err
	}
	defer a.slices.close()
	short, cancel := context.WithTimeout(ctx, startTimeout)
	opened := a.openGPUs(ctx)
	a.devices.loadPublished(short)
	select {
	case <-opened:
	case <-short.Done(): // the GPUs are offered once they are open
	}
	cancel()
	if err := a.devices.firstRefresh(ctx); err != nil {
		return err
	}
	a.serve(ctx)
	return nil
}

// serve runs the loops and the device plugin until the node is closed.
func (a *Agent) serve(ctx context.Context) {
	var loops sync.WaitGroup
	defer loops.Wait()
	serving, stop := a.publisher.servingContext(ctx)
	defer stop()
	terminations := &terminations{Options: a.Options, slices: a.slices, grants: a.granter.grants}
	sweeper := &sweeper{Options: a.Options, granter: a.granter, devices: a.devices}
	for _, loop := range []func(context.Context){
		sweeper.watchLoop, sweeper.loop, a.devices.loop, terminations.loop, a.memory.loop, a.slices.logFeatures,
	} {
		loops.Go(func() { loop(serving) })
	}
	loops.Go(func() { a.publisher.loop(serving, ctx) })
	loops.Go(func() {
		a.granter.adoptFromKubelet(serving)
		a.guard.loop(serving) // later than that: a container whose grant is not known would pass for a stranger
	})
	plugin := a.plugin()
	if err := plugin.Sweep(); err != nil {
		a.Log.Warn("failed to remove the sockets of an earlier agent", "error", err)
	}
	plugin.Run(serving)
}

// openGPUs starts to open the GPUs with MIG instances on demand. The returned channel is closed when all are open. Only containers on
// a GPU whose driver hangs wait for it; those that an earlier agent granted are served again once it is open.
func (a *Agent) openGPUs(ctx context.Context) (all <-chan struct{}) {
	return a.slices.open(ctx, func(uuid string) {
		if err := a.granter.serveRestored(); err != nil {
			a.Log.Error("failed to serve restored containers", "device", uuid, "error", err)
		}
		signal(a.devices.appeared)
	})
}

func (a *Agent) plugin() *deviceplugin.Plugin {
	return &deviceplugin.Plugin{
		Directory: a.Config.Kubernetes.DevicePlugins, Resource: string(kube.ResourceVGPU), Node: a, Log: a.Log,
		Registered: func(yes bool) {
			a.metrics.registered.Store(yes)
			signal(a.granter.wake)
			signal(a.publisher.requests)
		},
	}
}

// Tickets implements deviceplugin.Node.
func (a *Agent) Tickets() (tickets []string, changed <-chan struct{}) { return a.devices.tickets() }

// Allocate implements deviceplugin.Node. It removes the file of the tickets' previous owner, so that no container can be created with
// it, even if no new owner replaces it.
func (a *Agent) Allocate(tickets []string) string {
	key := ticket.Key(tickets)
	a.Records.Allocated(tickets)
	killPoint("allocate")
	if err := a.granter.files.Remove(key); err != nil {
		a.Log.Error("failed to remove an old CDI file", "tickets", tickets, "error", err)
	}
	return cdi.Name(key)
}

// PreStart implements deviceplugin.Node.
func (a *Agent) PreStart(ctx context.Context, tickets []string) error {
	return a.granter.start(ctx, tickets)
}

// lockNode blocks until no other agent serves this node: two would grant the same share twice.
func lockNode(ctx context.Context, name string) (unlock func(), err error) {
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			file.Close()
			return nil, fmt.Errorf("another agent serves this node: %w", err)
		}
	}
}
