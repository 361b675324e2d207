// Package agent is the node agent of a cluster: it gives containers what the scheduler placed for them, and takes it back
// when they are gone (DESIGN 4).
//
// What it has granted is written down before anything is done about it, in a directory for each container; a new agent takes
// these over. Everything else it asks anew: the kubelet whose tickets are, the pod where it was placed, the machine what it has.
package agent

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/node/cdi"
	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/dmem"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/injection"
	"github.com/gshare-dev/gshare/vgpu/node/inventory"
	"github.com/gshare-dev/gshare/vgpu/node/kubelet"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/node/partition/ondemand"
	"github.com/gshare-dev/gshare/vgpu/node/ticket"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// Options are what an agent is made of.
type Options struct {
	Config config.Configuration // with its defaults, its directory and the name of the node
	Source gpu.Source

	OnDemand *ondemand.Source // the Source, where it makes MIG instances; nil: none are made
	MPS      mps.Daemons
	Memory   *dmem.Limiter // lets the driver limit memory, where it can; nil: it is not asked
	Pods     *kubelet.Pods
	Records  *kubelet.Records
	Cluster  Cluster
	Log      *slog.Logger

	// ContainerOf tells in which container a process is; default is the kernel's word. Tests put processes into containers.
	ContainerOf func(pid int) (cgroup.Container, error)

	// PathOf tells the cgroup of the container of a process; default is the kernel's word.
	PathOf func(pid int) (string, error)

	// Capabilities is where the driver tells the device nodes of MIG instances; default is where it does. Tests have another driver.
	Capabilities cdi.Capabilities

	// Linger returns when the pods that were bound to the node before it was closed have had time to come; default is at once.
	Linger func(context.Context)

	// Fault is called between the steps of what must be safe against a sudden end; tests end the process there.
	Fault func(point string)
}

// Agent is the agent of one node.
type Agent struct {
	Options
	metrics *metrics
	server  *tokenserver.Server
	mps     *mps.Manager
	host    injection.Host
	files   cdi.Directory
	wake    chan struct{} // something may have ended
	report  chan struct{} // something is to be published
	closed  chan struct{} // the API server knows that the agent is about to end
	what    question[[]gpu.Device]
	asks    chan unlimited // for the driver's limits

	appeared chan struct{} // a GPU is open

	mu         sync.Mutex // guards the following
	inventory  inventory.Inventory
	devices    []gpu.Device  // at the last look
	bound      bool          // pods with shares may be bound to the node
	changed    chan struct{} // closed and replaced when tickets change
	freed      chan struct{} // closed and replaced when a grant is released
	book       *grant.Book
	slices     map[string]*tokenserver.Slice     // by ID
	containers map[string]*tokenserver.Container // by grant; those alone on their devices have none
	limits     map[string]string                 // SM limits that were moved, by grant, in words
	confirmed  map[string]driverLimit            // of memory, by the driver, by grant
	found      []watchdog.Finding                // processes that should not be there, at the last look
	used       map[string]string                 // slices that others use, by ID: by whom
}

// New makes an agent that has looked at nothing yet.
func New(o Options) (*Agent, error) {
	if o.Fault == nil {
		o.Fault = func(string) {}
	}
	if o.Linger == nil {
		o.Linger = func(context.Context) {}
	}
	if o.ContainerOf == nil {
		o.ContainerOf = containerOf
	}
	if o.PathOf == nil {
		o.PathOf = pathOf
	}
	if o.Capabilities == "" {
		o.Capabilities = cdi.DriverCapabilities
	}
	c := o.Config
	a := &Agent{
		Options: o, files: cdi.Directory(c.Kubernetes.CDI), bound: true,
		wake: make(chan struct{}, 1), report: make(chan struct{}, 1), closed: make(chan struct{}, 1), appeared: make(chan struct{}, 1),
		what:    question[[]gpu.Device]{call: o.Source.Devices},
		changed: make(chan struct{}), freed: make(chan struct{}),
		book: grant.NewBook(grant.Config{
			Node: c.Kubernetes.NodeName, Gamma: *c.GammaPercent * 10, MixTenants: c.Tenancy == "mixed",
		}),
		slices: map[string]*tokenserver.Slice{}, containers: map[string]*tokenserver.Container{}, limits: map[string]string{},
		confirmed: map[string]driverLimit{}, asks: make(chan unlimited, unlimitedAtOnce),
		server: tokenserver.New(tokenserver.Config{
			Log: o.Log, Turn: c.Turn.Duration, RunAhead: c.RunAhead.Duration, Window: c.Window.Duration,
		}),
	}
	a.mps = mps.New(mps.Config{Daemons: o.MPS, Log: o.Log, OnChange: func() { signal(a.report) }})
	a.metrics = newMetrics(a)
	a.host = injection.Host{Driver: cdi.Driver(c.Kubernetes.Driver), Capabilities: o.Capabilities, Device: a.device}
	if c.Kubernetes.Hook == "" {
		return a, nil
	}
	var err error
	a.host.Hook, a.host.Preload, err = injection.Install(c.Kubernetes.Hook, filepath.Join(c.Directory, "hook"))
	return a, err
}

// classes are what this node can enforce.
func (a *Agent) classes() []share.Isolation {
	if a.host.Hook == "" || a.MPS.Available() != nil {
		return []share.Isolation{share.Exclusive}
	}
	return []share.Isolation{share.Exclusive, share.MPS, share.Elastic}
}

func (a *Agent) inventoryConfig() inventory.Config {
	c := a.Config
	return inventory.Config{
		Owned: c.Devices, Closed: slices.Concat(c.Kubernetes.Cordon, c.Kubernetes.Drain, a.dropped()),
		Classes: a.classes(), Reserve: *c.ReservePerMille, MaxShares: c.MaxShares,
	}
}

// Tickets implements deviceplugin.Node.
func (a *Agent) Tickets() ([]string, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return ticket.All(a.inventory.Shares()), a.changed
}

// Allocate implements deviceplugin.Node. What an earlier owner of the tickets was granted must not be found behind the name,
// even if nobody comes to replace it.
func (a *Agent) Allocate(tickets []string) string {
	key := ticket.Key(tickets)
	a.Records.Allocated(tickets)
	a.Fault("allocate")
	if err := a.files.Remove(key); err != nil {
		a.Log.Error("remove an old grant", "tickets", tickets, "err", err)
	}
	return cdi.Name(key)
}

// signal makes a loop look again. It never waits.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// broadcast closes a channel for those who wait on it, and gives the next one.
func broadcast(c *chan struct{}) {
	close(*c)
	*c = make(chan struct{})
}

// dir is the directory of a container.
func (a *Agent) dir(id string) string { return filepath.Join(a.grantsDir(), id) }

func (a *Agent) grantsDir() string { return filepath.Join(a.Config.Directory, "grants") }

// now is when something was granted. It is written down, so it is cut to what is read back.
func now() time.Time { return time.Now().UTC().Truncate(time.Millisecond) }
