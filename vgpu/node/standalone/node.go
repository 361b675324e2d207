package standalone

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/node/dmem"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Options are what a node is made of.
type Options struct {
	Config  config.Configuration // with its defaults and its directory
	Devices []gpu.Device
	MPS     mps.Daemons
	Source  gpu.Source    // of the processes on the devices; nil: they are not looked at
	Groups  *Groups       // nil: processes are told apart by user only
	Memory  *dmem.Limiter // lets the driver limit memory by the Groups, where it can; nil: it is not asked
	Log     *slog.Logger
}

// Node is the agent of one machine.
type Node struct {
	Options
	packer packing.Packer
	empty  *packing.Node // the devices without runs
	server *tokenserver.Server
	mps    *mps.Manager
	slices []*tokenserver.Slice // of the devices
	dmem   driverLimits

	mu      sync.Mutex // guards the following
	runs    []*run     // in the order of admission
	waiters []*waiter  // in the order of arrival
	closed  bool
	watches sync.WaitGroup
}

// New takes the devices into service, with the runs that an earlier agent left.
func New(o Options) (*Node, error) {
	n := &Node{Options: o, packer: packerOf(o.Config)}
	n.server = tokenserver.New(tokenserver.Config{
		Log: o.Log, Turn: o.Config.Turn.Duration, RunAhead: o.Config.RunAhead.Duration, Window: o.Config.Window.Duration,
	})
	n.mps = mps.New(mps.Config{Daemons: o.MPS, Log: o.Log, OnChange: n.reconsider})
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
		tokens, err := o.Config.Tokens()
		if err != nil {
			return nil, err
		}
		n.slices = append(n.slices, n.server.NewSlice(tokens))
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("devices: %w of those that the configuration lists", gpu.ErrNoGPU)
	}
	if missing := len(o.Config.Devices) - found; missing > 0 {
		o.Log.Warn("the configuration lists devices that are not there", "missing", missing, "listed", o.Config.Devices)
	}
	n.empty = packing.NewNode("this machine", list, 0, 0)
	if err := os.MkdirAll(n.runsDir(), 0o755); err != nil {
		return nil, err
	}
	n.watchProcesses()
	return n, n.restore()
}

func packerOf(c config.Configuration) packing.Packer {
	rules := packing.NewRules(packing.Slots)
	rules.Gamma = *c.GammaPercent * 10
	rules.MixTenants = c.Tenancy == "mixed"
	return packing.Packer{Rules: rules, Ranker: packing.Balance{Demand: &packing.Demand{}}}
}

// slicesOf describes a device to the packer: as a whole, or by its MIG instances.
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

// sliceOf describes one slice. Without MPS it cannot be shared.
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

// Close stops serving. Runs go on, and the next agent takes them over.
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

// loaded is the devices with what the runs have of them.
func (n *Node) loaded() *packing.Node {
	node := n.empty.Clone()
	for _, r := range n.runs {
		node.Take(packing.Slots, r.pod(), packing.Plan{r.picks(node)})
	}
	return node
}
