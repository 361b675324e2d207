package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/gshare-dev/gshare/vgpu/node/cdi"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/injection"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// errInstance is returned for a MIG instance on demand that is gone, or whose GPU is not open yet.
var errInstance = errors.New("the MIG instance is not known")

// sliceRuntime runs what containers need on the node's slices: MIG instances on demand, MPS daemons, and the token server.
type sliceRuntime struct {
	*Options
	server *tokenserver.Server
	mps    *mps.Manager
	host   injection.Host

	mu     sync.Mutex // guards the following
	listed []gpu.Device
	tokens map[string]*tokenserver.Slice // token loops by slice ID; they are never removed
}

func newSliceRuntime(o *Options, publish func()) (*sliceRuntime, error) {
	c := o.Config
	r := &sliceRuntime{
		Options: o, tokens: map[string]*tokenserver.Slice{},
		server: tokenserver.New(tokenserver.Config{
			Log: o.Log, Turn: c.Turn.Duration, RunAhead: c.RunAhead.Duration, Window: c.Window.Duration,
		}),
		mps: mps.New(mps.Config{Daemons: o.MPS, Log: o.Log, OnChange: publish}),
	}
	r.host = injection.Host{Driver: cdi.Driver(c.Kubernetes.Driver), Capabilities: o.Capabilities, Device: r.device}
	if c.Kubernetes.Hook == "" {
		return r, nil
	}
	var err error
	r.host.Hook, r.host.Preload, err = injection.Install(c.Kubernetes.Hook, filepath.Join(c.Directory, "hook"))
	return r, err
}

// close ends the token server and the supervision of daemons. Daemons and containers go on.
func (r *sliceRuntime) close() {
	r.mps.Close()
	r.server.Close()
}

// classes returns the isolation classes that this node can enforce.
func (r *sliceRuntime) classes() []share.Isolation {
	if r.host.Hook == "" || r.MPS.Available() != nil {
		return []share.Isolation{share.Exclusive}
	}
	return []share.Isolation{share.Exclusive, share.MPS, share.Elastic}
}

// uuid returns the UUID of a slice, as programs and the driver use it. It differs from the slice ID only for MIG instances on demand,
// and is empty while such an instance is missing or not known yet.
func (r *sliceRuntime) uuid(slice string) string {
	if r.OnDemand == nil {
		return slice
	}
	return r.OnDemand.UUID(slice)
}

// byUUID returns the processes with their slices named by UUID, as MPS names them.
func (r *sliceRuntime) byUUID(processes []gpu.Process) []gpu.Process {
	named := make([]gpu.Process, len(processes))
	for i, p := range processes {
		named[i] = gpu.Process{PID: p.PID, Slice: r.uuid(p.Slice)}
	}
	return named
}

// setListed stores the devices that the driver listed last.
func (r *sliceRuntime) setListed(devices []gpu.Device) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listed = devices
}

// device returns the UUID of a slice and, for a MIG instance, the numbers of its device nodes.
func (r *sliceRuntime) device(slice string) injection.Device {
	found := injection.Device{UUID: r.uuid(slice)}
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

// open starts to open the GPUs with MIG instances on demand, and calls opened for each. The returned channel is closed when all are.
func (r *sliceRuntime) open(ctx context.Context, opened func(uuid string)) (all <-chan struct{}) {
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
		for _, p := range r.OnDemand.MissingProfiles(uuid) { // another GPU of the node may have it
			r.Log.Warn("a GPU does not offer a profile of kubernetes.onDemandProfiles", "device", uuid, "profile", p)
		}
		opened(uuid)
	})
}

// cordoned returns the placements of MIG instances that take no new containers, because their profile is not configured any more.
func (r *sliceRuntime) cordoned() []string {
	if r.OnDemand == nil {
		return nil
	}
	return r.OnDemand.WithdrawnPlacements()
}

// connect requests the MIG instances and the MPS daemon that a container needs, and returns the directory of the daemon's pipes;
// empty where none is used. The container must not start before they are ready: CUDA silently runs without MPS where it finds no daemon.
func (r *sliceRuntime) connect(g *grant.Grant) (pipe string, _ *grant.Refusal) {
	if r.OnDemand != nil {
		for _, v := range g.VGPUs {
			if err := r.OnDemand.Ensure(v.Slice); err != nil {
				return "", grant.SliceClosed(err)
			}
		}
	}
	if g.Class() == share.Exclusive || !r.MPS.Enabled() {
		return "", nil
	}
	m := r.memberOf(g)
	if m.Slice == "" {
		return "", grant.SliceClosed(errInstance)
	}
	pipe, err := r.mps.Open(m)
	if err != nil {
		return "", grant.SliceClosed(err)
	}
	return pipe, nil
}

// hold keeps the MIG instances and MPS daemons of these grants. Those of no grant are removed, and daemons stopped, so that the next
// containers start without state of earlier ones.
func (r *sliceRuntime) hold(grants []grant.Grant) {
	var held []string
	var members []mps.Member
	for _, g := range grants {
		for _, v := range g.VGPUs {
			held = append(held, v.Slice)
		}
		if m := r.memberOf(&g); m.Slice != "" && g.Class() != share.Exclusive {
			members = append(members, m)
		}
	}
	if r.OnDemand != nil {
		r.OnDemand.SetUsed(held)
	}
	r.mps.SetMembers(members)
}

// memberOf returns the container of a grant as MPS identifies it.
func (r *sliceRuntime) memberOf(g *grant.Grant) mps.Member {
	v := g.VGPUs[0]
	return mps.NewMember(r.uuid(v.Slice), g.ID(), v.Share, mps.HasLowPriority(v.Class, v.Priority))
}

// prepare reserves the shares of a container at the token server, which does not accept its processes before Listen.
func (r *sliceRuntime) prepare(g *grant.Grant, spec tokenserver.Spec) (*tokenserver.Container, error) {
	for i, v := range g.VGPUs {
		uuid := r.uuid(v.Slice)
		if uuid == "" {
			return nil, fmt.Errorf("%s: %w", v.Slice, errInstance)
		}
		tokens, err := r.tokensOf(v.Slice)
		if err != nil {
			return nil, err
		}
		spec.VGPUs = append(spec.VGPUs, tokenserver.VGPU{
			Share: v.Share, Slice: tokens, UUID: uuid, Index: i, Elastic: v.Class == share.Elastic, Priority: v.Priority,
		})
	}
	return r.server.Prepare(spec)
}

// tokensOf returns the token loop of a slice, and starts it at the first call.
func (r *sliceRuntime) tokensOf(slice string) (*tokenserver.Slice, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.tokens[slice]; s != nil {
		return s, nil
	}
	tokens, err := r.Config.NewTokens()
	if err != nil {
		return nil, err
	}
	r.tokens[slice] = r.server.NewSlice(tokens)
	return r.tokens[slice], nil
}

// sessions returns the PIDs of the processes that have a session at the token server.
func (r *sliceRuntime) sessions() map[int]bool {
	pids := map[int]bool{}
	for _, c := range r.server.Snapshot() {
		for _, v := range c.VGPUs {
			for _, p := range v.Processes {
				pids[p.PID] = true
			}
		}
	}
	return pids
}

// usesNamespace reports whether MPS holds the container in a namespace, whose limits its processes cannot loosen.
func (r *sliceRuntime) usesNamespace(g *grant.Grant) bool {
	return r.mps.HasNamespace(r.uuid(g.VGPUs[0].Slice), g.ID())
}

// hasNonMPSProcess reports whether a process of the pod uses the slice of the grant without being a client of MPS.
func (r *sliceRuntime) hasNonMPSProcess(g *grant.Grant) bool {
	for _, pid := range r.mps.NonMPSProcesses(r.uuid(g.VGPUs[0].Slice)) {
		if c, err := r.ContainerOf(pid); err == nil && c.PodUID == string(g.UID) {
			return true
		}
	}
	return false
}

// endClients ends the CUDA work of the matching MPS clients on a slice, before their processes are killed: a client that is killed at
// work may take the server, and so its neighbours, with it.
func (r *sliceRuntime) endClients(ctx context.Context, slice string, match func(pid int) bool) error {
	return r.mps.TerminateClients(ctx, r.uuid(slice), match)
}

// hasDaemon reports whether an MPS daemon of a slice is supervised.
func (r *sliceRuntime) hasDaemon(slice string) bool {
	_, supervised := r.mps.ClosedReasons()[r.uuid(slice)]
	return supervised
}

// logFeatures logs the features of this machine's MPS.
func (r *sliceRuntime) logFeatures(ctx context.Context) {
	if r.MPS.Enabled() {
		f, err := r.MPS.Features(ctx)
		r.Log.Info("MPS features", "namespaces", f.Namespaces, "staticPartitions", f.StaticPartitions, "error", err)
	}
}
