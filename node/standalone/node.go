package standalone

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/node/core"
	"github.com/gshare-dev/gshare/node/dmem"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/tokenserver"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// Options configures a node.
type Options struct {
	Config  config.Configuration // with its defaults and its directory
	Devices []gpu.Device
	MPS     mps.Daemons
	Source  gpu.Source    // lists the processes on the devices; nil: not monitored
	Groups  *Groups       // nil: processes are identified by their user only
	Memory  *dmem.Limiter // sets the driver's memory limits for the cgroups of Groups; nil: not used
	// Environment is added to that of every grant, and Metrics to the metrics of the debug server. Simulated devices need both.
	Environment []string
	Metrics     []prometheus.Collector
	Log         *slog.Logger
	timing      timing // zero: defaultTiming
}

// timing is the set of timeouts and periods of a node, which tests shorten.
type timing struct {
	mpsTimeout time.Duration // for MPS to serve the device of a request that is not queued
	lease      time.Duration // for the children of a restored run to reconnect
	request    time.Duration // to send a request to the control socket, and until an idle connection is closed; responses may take five times as long
	period     time.Duration // between checks of the processes on the devices, and before the first retry of a driver call
}

var defaultTiming = timing{mpsTimeout: 10 * time.Second, lease: tokenserver.Lease, request: 2 * time.Second, period: 2 * time.Second}

// Node grants shares of the GPUs of one machine to runs (programs started by gshare run) and serves them. Locks that guard state are not
// held during disk, driver or daemon I/O.
type Node struct {
	Options
	devices     *deviceSet
	runs        *runStore
	server      *runServer
	enforcement *enforcementReporter
	memory      *memoryLimiter
	audit       *memoryAudit
	unhooked    *unhookedWatch
	granter     *granter
}

// New returns a node that serves the configured devices, and the runs that an earlier agent left. It returns an error if there is no such
// device, or if there are runs of another version of the agent.
func New(o Options) (*Node, error) {
	if o.timing == (timing{}) {
		o.timing = defaultTiming
	}
	n := &Node{Options: o, runs: &runStore{}, audit: &memoryAudit{watch: watchdog.NewMemoryWatch(watchdog.Config{})}, unhooked: &unhookedWatch{}}
	var err error
	if n.devices, err = newDeviceSet(&n.Options); err != nil {
		return nil, err
	}
	n.granter = &granter{Options: &n.Options, devices: n.devices, runs: n.runs}
	present := func(uuid string) string { return string(n.devices.sliceByUUID(uuid).ID) }
	slices := core.NewSlices(o.Config, o.MPS, o.Log, present, n.granter.retryWaiters)
	n.enforcement = &enforcementReporter{Options: &n.Options, devices: n.devices, slices: slices, audit: n.audit, unhooked: n.unhooked}
	n.server = &runServer{Options: &n.Options, devices: n.devices, enforcement: n.enforcement, slices: slices}
	n.memory = &memoryLimiter{Options: &n.Options, devices: n.devices, runs: n.runs, confirmed: n.granter.recordMemoryLimit}
	n.granter.server, n.granter.memory, n.granter.enforcement = n.server, n.memory, n.enforcement
	if err := errors.Join(os.MkdirAll(n.server.runsDir(), 0o755), os.MkdirAll(n.server.recordsDir(), 0o755)); err != nil {
		return nil, err
	}
	n.watchProcesses()
	if err := (restorer{n.granter}).restore(); err != nil {
		n.Close()
		return nil, fmt.Errorf("restore runs: %w", err)
	}
	return n, nil
}

// Close stops serving. The processes of runs live on, and the next agent restores their shares.
func (n *Node) Close() {
	n.granter.close()
	n.server.slices.Close()
	n.granter.watches.Wait()
}

// watchProcesses observes the processes on the devices until the node is closed. It passes them to the MPS manager, which finds those that
// run without MPS, compares their memory with what the hook counts, and looks for programs without the hook. Close does not wait for it, since a call
// may hang in the driver.
func (n *Node) watchProcesses() {
	go func() {
		for ; !n.runs.isClosed(); time.Sleep(n.timing.period) {
			var processes []gpu.Process
			if n.Source != nil {
				var err error
				if processes, err = n.Source.Processes(); err == nil {
					n.server.slices.Daemons.ObserveProcesses(processes)
					n.audit.observe(n.runs.snapshot(), processes)
				}
			}
			n.unhooked.observe(n.runs.snapshot(), processes, n.timing.period)
		}
	}()
}
