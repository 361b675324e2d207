package standalone

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/node/dmem"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Options are the parts and settings of a node.
type Options struct {
	Config  config.Configuration // with its defaults and its directory
	Devices []gpu.Device
	MPS     mps.Daemons
	Source  gpu.Source    // of the processes on the devices; nil: not monitored
	Groups  *Groups       // nil: processes are identified by their user only
	Memory  *dmem.Limiter // memory limits of the driver for the Groups; nil: not used
	Log     *slog.Logger
	timing  timing // zero: defaultTiming
}

// timing is how long a node waits for what; tests wait less.
type timing struct {
	mpsTimeout time.Duration // for MPS to serve the device of a request that does not queue
	lease      time.Duration // for the children of a restored run to reconnect
	period     time.Duration // between looks at the processes on the devices, and before the first retry of a driver call
}

var defaultTiming = timing{mpsTimeout: 10 * time.Second, lease: tokenserver.Lease, period: 2 * time.Second}

// Node admits and serves the runs of one machine.
type Node struct {
	Options
	packer packing.Packer
	empty  *packing.Node // the devices without runs
	server *tokenserver.Server
	mps    *mps.Manager
	slices []*tokenserver.Slice // of the devices
	dmem   limiterState

	mu      sync.Mutex // guards the following
	runs    []*run     // in the order of admission
	waiters []*waiter  // in the order of arrival
	closed  bool
	watches sync.WaitGroup
}

// New returns a node that serves the devices and the runs of an earlier agent.
func New(o Options) (*Node, error) {
	if o.timing == (timing{}) {
		o.timing = defaultTiming
	}
	rules := nodeview.Rules(packing.Slots, o.Config.Rules())
	n := &Node{Options: o, packer: packing.Packer{Rules: rules, Ranker: packing.Balance{Demand: &packing.Demand{}}}}
	n.server = tokenserver.New(tokenserver.Config{
		Log: o.Log, Turn: o.Config.Turn.Duration, RunAhead: o.Config.RunAhead.Duration, Window: o.Config.Window.Duration,
	})
	n.mps = mps.New(mps.Config{Daemons: o.MPS, Log: o.Log, OnChange: n.retryWaiters})
	var list []packing.Slice
	found := 0
	for _, d := range o.Devices {
		if len(o.Config.Devices) > 0 && !slices.Contains(o.Config.Devices, d.UUID) {
			continue
		}
		found++
		list = append(list, n.slicesOf(d)...)
	}
	for range list {
		tokens, err := o.Config.NewTokens()
		if err != nil {
			return nil, err
		}
		n.slices = append(n.slices, n.server.NewSlice(tokens))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("devices: %w of those that the configuration lists", gpu.ErrNoGPU)
	}
	if missing := len(o.Config.Devices) - found; missing > 0 {
		o.Log.Warn("configured devices are missing", "missing", missing, "configured", o.Config.Devices)
	}
	n.empty = packing.NewNode("this machine", list, 0, 0)
	if err := os.MkdirAll(n.runsDir(), 0o755); err != nil {
		return nil, err
	}
	n.watchProcesses()
	return n, n.restore()
}

// slicesOf returns the slices of a device: the whole of it, or its healthy MIG instances.
func (n *Node) slicesOf(d gpu.Device) (list []packing.Slice) {
	if !d.MIG {
		return []packing.Slice{n.sliceOf(d, gpu.Instance{UUID: d.UUID, SMs: d.SMs, Memory: d.Memory})}
	}
	for _, i := range d.Instances {
		if i.Fault == "" {
			list = append(list, n.sliceOf(d, i))
		}
	}
	return list
}

// sliceOf returns one slice for the packer. Without MPS it is exclusive only.
func (n *Node) sliceOf(d gpu.Device, i gpu.Instance) packing.Slice {
	classes := []share.Isolation{share.Exclusive}
	if n.MPS.Available() == nil {
		classes = append(classes, share.MPS, share.Elastic)
	}
	return packing.Slice{
		ID: packing.SliceID(i.UUID), Device: d.UUID, Model: d.Model, Profile: i.Profile, SMs: i.SMs, Memory: i.Memory, Classes: classes,
		Healthy: true, Reserve: *n.Config.ReservePerMille, MaxShares: n.Config.MaxShares,
	}
}

func (n *Node) runsDir() string { return filepath.Join(n.Config.Directory, "runs") }

// Close stops serving. The processes of runs live on, and the next agent restores their shares.
func (n *Node) Close() {
	n.mu.Lock()
	n.closed = true
	for _, r := range n.runs {
		r.process.Close()
	}
	n.admitWaiters()
	n.mu.Unlock()
	n.mps.Close()
	n.server.Close()
	n.watches.Wait()
}

// usage returns the devices with the load of all runs.
func (n *Node) usage() *packing.Node {
	node := n.empty.Clone()
	for _, r := range n.runs {
		node.Take(packing.Slots, r.pod(), packing.Plan{r.picks(node)})
	}
	return node
}
