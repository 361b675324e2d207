package agent

import (
	"context"
	"path/filepath"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/cdi"
	"github.com/gshare-dev/gshare/node/core"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/injection"
	"github.com/gshare-dev/gshare/node/modelstore"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// sliceRuntime runs what containers need on the node's slices, among it MIG instances created on demand.
type sliceRuntime struct {
	*Options
	*core.Slices
	host injection.Host

	mu     sync.Mutex // guards the following
	listed []gpu.Device
}

func newSliceRuntime(o *Options, publish func()) (*sliceRuntime, error) {
	c := o.Config
	r := &sliceRuntime{Options: o}
	r.Slices = core.NewSlices(c, o.MPS, o.Log, r.uuidOf, publish)
	r.host = injection.Host{
		Driver: cdi.Driver(c.Kubernetes.Driver), AllLibraries: c.Kubernetes.AllLibraries, Capabilities: o.Capabilities, Device: r.injectedDevice,
	}
	if o.Stores != nil {
		r.host.Store = func(slice, namespace string) string {
			return o.Stores.SocketDir(modelstore.Store{Slice: slice, Namespace: namespace})
		}
	}
	if c.Kubernetes.Hook == "" {
		return r, nil
	}
	var err error
	dir := filepath.Join(c.Directory, "hook")
	if r.host.Hook, r.host.Preload, err = injection.Install(c.Kubernetes.Hook, dir); err != nil {
		return r, err
	}
	if r.host.Drain, err = injection.InstallDrain(c.Kubernetes.Hook, filepath.Join(c.Directory, "drain")); err != nil {
		return r, err
	}
	if o.Stores != nil {
		r.host.StoreFiles, err = injection.InstallStoreFiles(c.Kubernetes.Hook, dir)
	}
	return r, err
}

// classes returns the isolation classes that this node can enforce. Without the hook library or MPS, that is only exclusive.
func (r *sliceRuntime) classes() []share.Isolation {
	if r.host.Hook == "" || r.MPS.Available() != nil {
		return []share.Isolation{share.Exclusive}
	}
	classes := []share.Isolation{share.Exclusive, share.MPS, share.Elastic}
	if r.Config.Kubernetes.Swap != nil {
		classes = append(classes, share.Swap)
	}
	return classes
}

// swap returns what the slices offer to shares of class swap, or nil if the node cannot enforce the class or is not configured for it.
func (r *sliceRuntime) swap() *kube.Swap {
	if !slices.Contains(r.classes(), share.Swap) {
		return nil
	}
	s := r.Config.Kubernetes.Swap
	return &kube.Swap{HostMiB: s.HostMemoryMiB, KeptMiB: s.KeptMemoryMiB}
}

// checkUsers returns a refusal if the container needs the hook but could not load it.
func (r *sliceRuntime) checkUsers(pod *v1.Pod, granted *grant.Grant) *grant.Refusal {
	if granted.Class() == share.Exclusive {
		return nil
	}
	return r.host.CheckUsers(pod)
}

// uuidOf returns the UUID by which CUDA and the driver know a slice. It differs from the slice ID only for MIG instances created on demand,
// and is empty while such an instance does not exist.
func (r *sliceRuntime) uuidOf(slice string) string {
	if r.OnDemand == nil {
		return slice
	}
	return r.OnDemand.UUID(slice)
}

// withSliceUUIDs returns copies of the processes with slice IDs replaced by UUIDs, by which MPS names slices.
func (r *sliceRuntime) withSliceUUIDs(processes []gpu.Process) []gpu.Process {
	named := make([]gpu.Process, len(processes))
	for i, p := range processes {
		named[i] = p
		named[i].Slice = r.uuidOf(p.Slice)
	}
	return named
}

// setDevices stores the devices that the driver listed last.
func (r *sliceRuntime) setDevices(devices []gpu.Device) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed = devices
}

// injectedDevice returns the UUID of a slice and, for a MIG instance, the numbers that identify its device nodes.
func (r *sliceRuntime) injectedDevice(slice string) injection.Device {
	found := injection.Device{UUID: r.uuidOf(slice)}
	r.mu.Lock()
	devices := r.listed
	r.mu.Unlock()
	if r.OnDemand != nil {
		if d, ok := r.OnDemand.DeviceOf(slice); ok {
			devices = []gpu.Device{d}
		}
	}
	for _, d := range devices {
		for _, i := range d.Instances {
			if i.UUID == found.UUID {
				found.MIG = &cdi.Instance{Minor: d.Minor, GPU: i.GPU, Compute: i.Compute}
			}
		}
	}
	return found
}

// openGPUs starts to open, in the background, the GPUs on which MIG instances are created on demand, and calls opened for each one that is
// ready. The returned channel is closed when all are.
func (r *sliceRuntime) openGPUs(ctx context.Context, opened func(uuid string)) (all <-chan struct{}) {
	if r.OnDemand == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	return r.OnDemand.Open(ctx, r.Config.Kubernetes.HealthPeriod.Duration, func(uuid string, err error) {
		if err != nil {
			r.Log.Error("failed to open a GPU for MIG instances on demand", "device", uuid, "error", err)
			return
		}
		for _, p := range r.OnDemand.MissingProfiles(uuid) { // another GPU of the node may have the profile
			r.Log.Warn("a GPU does not offer a profile of kubernetes.onDemandProfiles", "device", uuid, "profile", p)
		}
		opened(uuid)
	})
}

// withdrawnPlacements returns the IDs of MIG placements that take no new containers, because the configuration no longer lists their
// profile.
func (r *sliceRuntime) withdrawnPlacements() []string {
	if r.OnDemand == nil {
		return nil
	}
	return r.OnDemand.WithdrawnPlacements()
}

// provision creates the MIG instances of a grant and starts its MPS daemon. It returns where the container finds the daemon, or nothing if
// it uses no MPS. It returns a refusal until both are ready, since a CUDA program that finds no daemon silently runs without MPS.
func (r *sliceRuntime) provision(g *grant.Grant) (mps.Endpoint, *grant.Refusal) {
	if r.OnDemand != nil {
		for _, v := range g.VGPUs {
			if err := r.OnDemand.Ensure(v.Slice); err != nil {
				return mps.Endpoint{}, grant.SliceClosed(err)
			}
		}
	}
	if !r.MPS.Enabled() {
		return mps.Endpoint{}, nil
	}
	endpoint, err := r.OpenMPS(holderOf(g))
	if err != nil {
		return mps.Endpoint{}, grant.SliceClosed(err)
	}
	return endpoint, nil
}

// retain keeps the MIG instances and MPS daemons that these grants use. All others are removed or stopped, so that the next containers find
// no state of earlier ones.
func (r *sliceRuntime) retain(grants []grant.Grant) {
	var held []string
	var holders []core.Holder
	for _, g := range grants {
		for _, v := range g.VGPUs {
			held = append(held, v.Slice)
		}
		holders = append(holders, *holderOf(&g))
	}
	if r.OnDemand != nil {
		r.OnDemand.SetUsed(held)
	}
	r.RetainMPS(holders)
}

// holderOf returns the container of a grant as the holder of its shares.
func holderOf(g *grant.Grant) *core.Holder {
	return &core.Holder{ID: g.ID(), VGPUs: g.VGPUs, Imports: share.MemoryOf(g.Weights)}
}

// sessionPIDs returns the PIDs of the processes that are connected to the token server.
func (r *sliceRuntime) sessionPIDs() map[int]bool {
	pids := map[int]bool{}
	for _, c := range r.Tokens.Snapshot() {
		for _, v := range c.VGPUs {
			for _, p := range v.Processes {
				pids[p.PID] = true
			}
		}
	}
	return pids
}

// hasNonMPSProcess reports whether a process of the grant's pod uses the slice without being an MPS client, so that MPS does not limit it.
func (r *sliceRuntime) hasNonMPSProcess(g *grant.Grant) bool {
	for _, pid := range r.Daemons.NonMPSProcesses(r.uuidOf(g.VGPUs[0].Slice)) {
		if c, err := r.ContainerOf(pid); err == nil && c.PodUID == string(g.UID) {
			return true
		}
	}
	return false
}

// terminateClients ends the CUDA contexts of the matching MPS clients on a slice, before their processes are killed: an MPS client that is
// killed during a kernel may crash the MPS server, and with it the other clients.
func (r *sliceRuntime) terminateClients(ctx context.Context, slice string, match func(pid int) bool) error {
	return r.Daemons.TerminateClients(ctx, r.uuidOf(slice), match)
}

// hasDaemon reports whether the agent supervises an MPS daemon for a slice.
func (r *sliceRuntime) hasDaemon(slice string) bool {
	_, supervised := r.Daemons.ClosedReasons()[r.uuidOf(slice)]
	return supervised
}

// logFeatures logs which optional features the MPS of this machine has.
func (r *sliceRuntime) logFeatures(ctx context.Context) {
	if r.MPS.Enabled() {
		f, err := r.MPS.Features(ctx)
		r.Log.Info("MPS features", "namespaces", f.Namespaces, "staticPartitions", f.StaticPartitions, "error", err)
	}
}
