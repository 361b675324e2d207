// Package enforce measures what pods get on one GPU, with the real token server, the real hook in real processes, the fake driver and
// the device simulation, on the virtual clock. Its results describe time sharing, not a real device: the simulation has no memory
// bandwidth, no caches and no preemption.
package enforce

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/node/tokenserver"
	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// Pod describes a container of an experiment, with one or more processes. Their loads are command-line arguments of the test program
// hook/fake/programs/spin.c.
type Pod struct {
	Share    share.Share
	Priority share.Priority // of an elastic share
	Load     []string
	More     [][]string // the loads of further processes
	Env      []string
}

// Experiment describes pods that share one simulated GPU, and how long they run.
type Experiment struct {
	Folder   string // holds the build of native.Driver
	Unhooked bool   // the processes run without the hook
	Tokens   token.Config
	Elastic  bool          // the shares are of class elastic: block tokens apply, and Tokens is not used
	RunAhead time.Duration // of the token server; 0 for its default
	Late     time.Duration // the timers of the token server expire up to so much late
	Pods     []Pod
	Length   time.Duration
}

// UUID is the UUID of the experiment's GPU.
const UUID = "GPU-00000000-0000-0000-0000-000000000000"

// Result holds the kernels that a pod has run, and the device time that its hook has reported.
type Result struct {
	Kernels  Spans
	Reported time.Duration // measured by the hook in the last nine tenths of a second
}

// Run runs the experiment on the virtual clock and returns the results of its pods, in their order.
func (e Experiment) Run() (results []Result, err error) {
	m, err := e.Open()
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if err := m.GPU.Run(e.Length); err != nil {
		return nil, err
	}
	return m.Results(), nil
}

// Machine is a running experiment: its pods have started, and its virtual clock stands at zero until GPU.Run advances it.
type Machine struct {
	Experiment
	GPU    *fakegpu.Simulation
	Server *tokenserver.Server
	Served []*tokenserver.Container // one for each pod

	dir  string
	pods [][]*fakegpu.Running // the processes of each pod

	now time.Duration // end of the period covered by Watch
}

// Open starts the simulated GPU, the token server and the processes of the pods, and waits until all processes have called the driver.
func (e Experiment) Open() (m *Machine, err error) {
	m = &Machine{Experiment: e}
	defer func() {
		if err != nil {
			m.Close()
		}
	}()
	if m.dir, err = os.MkdirTemp("", "enforce"); err != nil { // short: names of sockets end at 108 bytes
		return m, err
	}
	if m.GPU, err = fakegpu.New(fakegpu.Config{Socket: filepath.Join(m.dir, "gpu"), Virtual: true}); err != nil {
		return m, err
	}
	if err := m.Serve(); err != nil {
		return m, err
	}
	processes := 0
	for i := range e.Pods {
		for _, load := range append([][]string{e.Pods[i].Load}, e.Pods[i].More...) {
			if err := m.start(i, load); err != nil {
				return m, err
			}
			processes++
		}
	}
	if err := m.GPU.Await(processes); err != nil {
		return m, fmt.Errorf("start the pods: %w", err)
	}
	return m, nil
}

// Close kills all processes, and stops the token server and the simulated GPU.
func (m *Machine) Close() {
	for _, processes := range m.pods {
		for _, p := range processes {
			p.Kill()
		}
	}
	if m.Server != nil {
		m.Server.Close()
	}
	if m.GPU != nil {
		m.GPU.Close()
	}
	os.RemoveAll(m.dir)
}

// Serve starts a token server for the pods. Called after an earlier server was closed, it simulates a restart.
func (m *Machine) Serve() error {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	m.Server = tokenserver.New(tokenserver.Config{
		Clock: lateClock{m.GPU.Clock(), m.Late}, Log: quiet, Window: m.Tokens.Window, RunAhead: m.RunAhead,
		HelloTimeout: time.Hour, // of the machine that simulates, which may stand still for seconds
	})
	tokens, err := token.New(m.Tokens)
	if err != nil {
		return err
	}
	slice := m.Server.NewSlice(tokens)
	m.Served = nil
	for i, p := range m.Pods {
		c, err := m.Server.AddContainer(tokenserver.Spec{
			ID: fmt.Sprintf("%03d", i), Dir: m.podDir(i),
			VGPUs: []tokenserver.VGPU{{Share: p.Share, Slice: slice, UUID: UUID, Elastic: m.Elastic, Priority: p.Priority}},
		})
		if err != nil {
			return fmt.Errorf("serve pod %d: %w", i, err)
		}
		m.Served = append(m.Served, c)
	}
	return nil
}

// start starts a process of a pod with the given load, the arguments of the program spin.
func (m *Machine) start(pod int, load []string) error {
	p := m.Pods[pod]
	client := fakegpu.Client{
		Folder: m.Folder, Arguments: append([]string{"spin"}, load...), SMs: p.Share.SMLimit,
		Env: append([]string{"GSHARE_DIR=" + m.podDir(pod)}, p.Env...),
	}
	if !m.Unhooked {
		client.Preload = filepath.Join(m.Folder, "libgshare-virtual.so")
	}
	r, err := m.GPU.Start(client)
	if err != nil {
		return err
	}
	for len(m.pods) <= pod {
		m.pods = append(m.pods, nil)
	}
	m.pods[pod] = append(m.pods[pod], r)
	return nil
}

// Spans returns the kernels that all processes of a pod have run so far, in the order in which they ended.
func (m *Machine) Spans(pod int) (all Spans) {
	for _, p := range m.pods[pod] {
		all = append(all, m.GPU.Spans(p.PID)...)
	}
	slices.SortStableFunc(all, func(a, b fakegpu.Span) int { return cmp.Compare(a.End, b.End) })
	return all
}

// Process returns the kernels that one process of a pod has run so far, in the order in which they ended.
func (m *Machine) Process(pod, process int) Spans { return m.GPU.Spans(m.pods[pod][process].PID) }

// Busy returns for how long kernels of a pod's first process have run so far.
func (m *Machine) Busy(pod int) time.Duration { return m.GPU.Usage(m.pods[pod][0].PID).Busy }

// Kill kills one process of a pod.
func (m *Machine) Kill(pod, process int) { m.pods[pod][process].Kill() }

// Results returns what each pod has used so far.
func (m *Machine) Results() (results []Result) {
	for i, c := range m.Served {
		results = append(results, Result{m.Spans(i), c.Status().VGPUs[0].Busy})
	}
	return results
}

func (m *Machine) podDir(pod int) string { return filepath.Join(m.dir, fmt.Sprint(pod)) }
