// Package agent is the node agent of a cluster. It gives containers the shares that the scheduler placed for them, and releases the shares
// when the containers are gone.
//
// Each grant is written to disk before it takes effect, in a directory for each container, and the next agent restores it. All other state
// is read again at the start: the owners of device IDs from the kubelet, placements from pods, devices from the driver.
package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/deviceplugin"
	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/node/cdi"
	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/deviceid"
	"github.com/gshare-dev/gshare/node/dmem"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/killpoint"
	"github.com/gshare-dev/gshare/node/kubelet"
	"github.com/gshare-dev/gshare/node/modelstore"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/parking"
	"github.com/gshare-dev/gshare/node/partition/ondemand"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// Options configures an agent. All components of the agent share one copy, which nothing changes after the start. It has many fields: one
// for each part of the node or the cluster that the agent acts on.
type Options struct {
	Config config.Configuration // with defaults, directory and node name set
	Source gpu.Source

	OnDemand *ondemand.Source // Source itself, if it creates MIG instances on demand; nil: none are created
	MPS      mps.Daemons
	Memory   *dmem.Limiter       // sets the driver's memory limits; nil: these limits are not used
	Stores   *modelstore.Manager // runs the stores of weights that pods share; nil: there are no stores
	Pods     kubelet.Pods
	Records  *kubelet.Records
	Cluster  Cluster
	Client   kubernetes.Interface // for resource claims; nil: claims are not served
	Log      *slog.Logger

	// ContainerOf returns the container of a process. The default reads the kernel's cgroups; tests assign processes themselves.
	ContainerOf func(pid int) (cgroup.Container, error)

	// PathOf returns the cgroup path of the container of a process. The default reads the kernel's cgroups.
	PathOf func(pid int) (string, error)

	// Capabilities is the driver's list of the device nodes of MIG instances. The default is the real driver's list; tests have their own.
	Capabilities cdi.Capabilities

	// Parking makes the servers of functions give their memory back and take it again. The default tries each method that package parking
	// knows.
	Parking Parking

	// Linger blocks until the pods that were bound before the node was closed have had time to start. The default returns at once.
	Linger func(context.Context)
}

// killPoint marks a point between two steps at which a crash must not lose anything. Tests replace it to kill the agent there.
var killPoint = killpoint.At

// Parking parks the servers in containers.
type Parking interface {
	Find(context.Context, parking.Server) (parking.Method, error)
	Wake(context.Context, parking.Server) error
}

func (o *Options) setDefaults() {
	if o.Parking == nil {
		o.Parking = parking.Methods
	}
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

// Agent is the gshare agent of one Kubernetes node. Each component guards its state by its own lock, which it never holds during disk,
// driver or daemon I/O. While a component holds its lock, it may only lock components that are listed before it.
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
	proxies     *deviceplugin.ProxyServer
}

// New returns an agent with these options. It reads nothing from disk, kubelet or driver before Run.
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
		claims:  &claimReporter{Options: &o, grants: a.granter.grants, enforcement: a.enforcement, written: map[types.UID]string{}},
		lowered: &a.granter.lowered, requests: requests, closed: make(chan struct{}, 1),
	}
	a.proxies = a.proxyServer()
	return a, nil
}

// startTimeout limits how long a starting agent waits for the API server and for its GPUs to be opened. After that the agent registers with
// the kubelet regardless, since the kubelet fails pods whose device plugin is not registered.
const startTimeout = 2 * time.Second

// Run grants shares to the node's containers until the context ends; it then marks the node as closed for new pods and returns. Grants are
// not released: the next agent restores them from disk.
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
	defer a.slices.Close()
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
	listener, err := a.proxies.Listen()
	if err != nil {
		return fmt.Errorf("serve the proxy: %w", err)
	}
	a.serve(ctx, listener)
	return nil
}

// serve runs the agent's periodic loops, serves the proxy, and serves the kubelet directly while there is no proxy. When the context ends,
// it first publishes that the node takes no new pods, and returns once the loops have ended.
func (a *Agent) serve(ctx context.Context, listener net.Listener) {
	var loops sync.WaitGroup
	defer loops.Wait()
	serving, stop := a.publisher.servingContext(ctx)
	defer stop()
	drains := &drains{Options: a.Options, metrics: a.metrics, slices: a.slices, grants: a.granter.grants, last: map[cgroup.Container]time.Time{}}
	terminations := &terminations{drains: drains}
	sweeper := &sweeper{Options: a.Options, granter: a.granter, devices: a.devices, residency: newResidencyKeeper(a.granter)}
	for _, loop := range []func(context.Context){
		sweeper.watchLoop, sweeper.loop, sweeper.residency.loop, a.devices.loop, terminations.loop, drains.loop, a.memory.loop, a.slices.logFeatures,
		a.granter.stores.loop,
	} {
		loops.Go(func() { loop(serving) })
	}
	loops.Go(func() { a.publisher.loop(serving, ctx) })
	loops.Go(func() {
		adopter := adopter{a.granter}
		refused := adopter.adopt(serving)
		loops.Go(func() { adopter.adoptLater(serving, refused) })
		if err := a.granter.removeUngranted(serving); err != nil && serving.Err() == nil {
			a.Log.Warn("failed to remove directories without a grant", "error", err)
		}
		a.guard.loop(serving) // not earlier: it would report containers whose grants are not known yet
	})
	loops.Go(func() { a.proxies.Serve(serving, listener) })
	if a.servesClaims() {
		loops.Go(func() { a.claimPlugin().Run(serving) })
	}
	plugin := a.plugin()
	if err := plugin.Sweep(); err != nil {
		a.Log.Warn("failed to remove sockets of earlier device plugins", "error", err)
	}
	plugin.Run(serving)
}

// openGPUs starts to open, in the background, the GPUs on which the agent creates MIG instances on demand. The returned channel is closed
// when all are open. A GPU whose driver hangs delays only its own containers. Restored grants on a GPU take effect once it is open.
func (a *Agent) openGPUs(ctx context.Context) (all <-chan struct{}) {
	return a.slices.openGPUs(ctx, func(string) {
		a.granter.serveRestored()
		signal(a.devices.appeared)
	})
}

// plugin returns the agent's own device plugin, which registers with the kubelet while no proxy does.
func (a *Agent) plugin() *deviceplugin.Plugin {
	return &deviceplugin.Plugin{
		Directory: a.Config.Kubernetes.DevicePlugins, Resource: string(kube.ResourceVGPU), Node: besideProxy{a}, Log: a.Log,
		Registered: func(yes bool) { a.watched(&a.metrics.registered, yes) }, Await: a.proxies.WaitAbsent,
	}
}

// servesClaims reports whether the configuration offers GPUs to resource claims, or whether this or an earlier agent of the node has served
// claims. In the latter case the kubelet still has to unprepare the claims, including refused ones, at the driver, and keeps their pods from
// ending until it has.
func (a *Agent) servesClaims() bool {
	if a.Client == nil {
		return false
	}
	_, err := os.Stat(filepath.Join(a.Config.Kubernetes.Plugins, draplugin.Driver))
	return err == nil || len(a.Config.Kubernetes.ResourceClaims) > 0
}

// claimPlugin returns the driver for resource claims. It needs no proxy: while there is no agent, the kubelet lets pods that have claims
// wait.
func (a *Agent) claimPlugin() *draplugin.Plugin {
	k := a.Config.Kubernetes
	return &draplugin.Plugin{
		Client: a.Client, NodeName: k.NodeName, Plugins: k.Plugins, Registry: k.PluginRegistry, Node: a, Log: a.Log,
		HealthTimeout: max(claimHealthTimeout, 3*k.HealthPeriod.Duration),
	}
}

// besideProxy answers the calls that the kubelet makes to the agent itself. They may come while a proxy that has just died still counts as
// connected.
type besideProxy struct{ *Agent }

// PreStart grants like Agent.PreStart. While a proxy is connected, it forgets the known owners of device IDs first: the proxy may have answered
// an Allocate that it has not reported yet.
func (b besideProxy) PreStart(ctx context.Context, deviceIDs []string) error {
	if b.proxies.Connected() {
		b.Records.ForgetAll()
	}
	return b.Agent.PreStart(ctx, deviceIDs)
}

func (a *Agent) proxyServer() *deviceplugin.ProxyServer {
	return &deviceplugin.ProxyServer{
		Directory: filepath.Join(a.Config.Directory, config.ProxyDirectory), Node: a, Log: a.Log,
		Registered: func(yes bool) { a.watched(&a.metrics.proxies, yes) }, Lost: a.Records.ForgetAll,
	}
}

// watched counts the plugins of one kind that the kubelet watches. It is called whenever the kubelet begins to watch one, or stops.
func (a *Agent) watched(plugins *atomic.Int32, yes bool) {
	if yes {
		plugins.Add(1)
	} else {
		plugins.Add(-1)
	}
	signal(a.granter.wake)
	signal(a.publisher.requests)
}

// DeviceIDs returns the device IDs of gshare/vgpu that the node advertises (device IDs), and a channel that is closed when they change.
func (a *Agent) DeviceIDs() (deviceIDs []string, changed <-chan struct{}) {
	return a.devices.deviceIDs()
}

// Allocate returns the CDI device name for device IDs that the kubelet allocates (device IDs of gshare/vgpu). It removes the CDI file that an
// earlier owner of the device IDs left, so that no container can be created with the earlier owner's devices.
func (a *Agent) Allocate(deviceIDs []string) string {
	key := deviceid.Key(deviceIDs)
	a.Records.Allocated(deviceIDs)
	killPoint("allocate")
	if err := a.granter.files.Remove(key); err != nil {
		a.Log.Error("failed to remove an old CDI file", "deviceIDs", deviceIDs, "error", err)
	}
	return cdi.Name(key)
}

// PreStart grants the share of the container that holds the device IDs (of gshare/vgpu) before the kubelet creates it. After an
// error the kubelet does not create the container.
func (a *Agent) PreStart(ctx context.Context, deviceIDs []string) error {
	return a.granter.grantDeviceIDs(ctx, deviceIDs)
}

// lockNode takes the file lock that only one agent of a node may hold: two agents would grant the same share twice. It blocks until the lock
// is free, and returns an error if the context ends first.
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

// Prefer implements GetPreferredAllocation: it chooses n device IDs (of gshare/vgpu), preferably those numbered like the slices of
// the container's placement. The choice only makes the kubelet's records easier to read.
func (a *Agent) Prefer(ctx context.Context, available, must []string, n int) []string {
	ctx, cancel := context.WithTimeout(ctx, preferWithin)
	defer cancel()
	var placed []string
	if pods, err := a.Pods.TryList(ctx); err == nil {
		placed = a.placedSlices(pods, n)
	}
	return deviceid.Prefer(available, must, a.devices.sliceIndexes(placed), n)
}

// placedSlices returns the slices of the only placed container that has n vGPUs and no device IDs yet. It returns none if several such
// containers have different slices.
func (a *Agent) placedSlices(pods []*v1.Pod, n int) (placed []string) {
	for _, pod := range pods {
		if kube.Ended(pod) || a.Records.Complete(pod.UID) {
			continue
		}
		placement, present, err := kube.PlacementOf(pod)
		if !present || err != nil {
			continue
		}
		for _, c := range placement.Containers {
			var of []string
			for _, v := range c.VGPUs {
				of = append(of, v.Slice)
			}
			switch {
			case len(of) != n:
			case placed != nil && !slices.Equal(placed, of):
				return nil
			default:
				placed = of
			}
		}
	}
	return placed
}
