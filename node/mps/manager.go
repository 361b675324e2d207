package mps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// Config configures the Manager of a node's MPS daemons.
type Config struct {
	Daemons
	Log        *slog.Logger
	Interval   time.Duration     // between two observations of a slice; 0: one second
	Supervisor supervisor.Config // zero: delays that suit one observation per second
	OnChange   func()            // called without locks held, when a slice opens or closes, or its non-MPS processes change
}

var defaultSupervisor = supervisor.Config{
	FirstDelay: time.Second, LastDelay: time.Minute, Settled: 5 * time.Minute, Patience: 10 * time.Second, Grace: 10 * time.Second,
}

// pendingTimeout is how long a daemon is kept for a share that was passed to Open but not yet to SetMembers.
const pendingTimeout = 30 * time.Second

// Manager runs an MPS control daemon for each shared slice. It is safe for concurrent use. Only TerminateClients and Close block on daemons.
type Manager struct {
	Config
	ctx   context.Context
	stop  context.CancelFunc
	loops sync.WaitGroup

	mu        sync.Mutex          // guards the following
	daemons   map[string]*daemon  // by slice
	members   map[string][]Member // by slice, from the last SetMembers
	processes map[string][]int    // PIDs by slice, from the last ObserveProcesses; nil before the first
	closed    bool
}

// New returns a Manager of MPS daemons. It starts none until Open or SetMembers is called.
func New(c Config) *Manager {
	if c.Interval == 0 {
		c.Interval = time.Second
	}
	if c.Supervisor == (supervisor.Config{}) {
		c.Supervisor = defaultSupervisor
	}
	if c.OnChange == nil {
		c.OnChange = func() {}
	}
	m := &Manager{Config: c, daemons: map[string]*daemon{}}
	m.ctx, m.stop = context.WithCancel(context.Background())
	return m
}

// Close stops managing the daemons and waits for the goroutines that manage them. Daemons and their clients keep running for the next
// Manager.
func (m *Manager) Close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.stop()
	m.loops.Wait()
}

// ErrClosed means that a slice accepts no new MPS clients at the moment. Callers retry.
var ErrClosed = errors.New("MPS does not accept clients on the slice now")

// Endpoint tells where the processes of a share find the MPS daemon of their slice.
type Endpoint struct {
	PipeDir      string
	SharedMemory string // the directory that containers must have at /dev/shm; empty: any directory will do, or they have the machine's
}

// Open returns the MPS endpoint for new processes of a share. If the slice accepts none now, it returns ErrClosed with the reason, and the
// slice's daemon and the share's namespace are created in the background. If MPS is not enabled, Open never fails.
func (m *Manager) Open(member Member) (Endpoint, error) {
	if !m.Enabled() {
		return Endpoint{PipeDir: m.ClientDir(member.Slice)}, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.daemonLocked(member.Slice)
	if !slices.Contains(m.members[member.Slice], member) {
		d.pending[member.Name] = pendingMember{member, time.Now()}
	}
	if d.closed == "" && !isAlive(d.pid, d.startTime) {
		d.closed = "the daemon has ended" // the next observation would notice this too, but later
	}
	reason := cmp.Or(d.closed, d.namespaceMissing(member))
	if reason == "" {
		reason = d.sharedMemoryMissing(d.pid)
	}
	if reason != "" {
		signalLoop(d.wake)
		return Endpoint{}, fmt.Errorf("%w: %s", ErrClosed, reason)
	}
	endpoint := Endpoint{PipeDir: d.memberPipeDir(member)}
	if d.usesSharedMemory() {
		endpoint.SharedMemory = d.SharedMemory(d.slice)
	}
	return endpoint, nil
}

// SetMembers sets which shares use MPS on which slices. Daemons of slices without shares stop once they have no clients. The shared memory
// of these slices is then unmounted, even if an earlier agent mounted it.
func (m *Manager) SetMembers(members []Member) {
	if !m.Enabled() {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.members = map[string][]Member{}
	for _, member := range members {
		m.members[member.Slice] = append(m.members[member.Slice], member)
		delete(m.daemonLocked(member.Slice).pending, member.Name)
	}
	for _, slice := range m.slicesWithSharedMemory() {
		m.daemonLocked(slice)
	}
	for _, d := range m.daemons {
		signalLoop(d.wake)
	}
}

// daemonLocked returns the daemon of a slice, and starts to manage it if it is new. The caller holds m.mu.
func (m *Manager) daemonLocked(slice string) *daemon {
	d := m.daemons[slice]
	if d == nil {
		d = newDaemon(m, slice)
		m.daemons[slice] = d
		if !m.closed {
			m.loops.Go(d.loop)
		}
	}
	return d
}

// ObserveProcesses tells the manager which processes the driver lists on all slices. Those that are not clients of a daemon run without
// limits: CUDA silently runs a process without MPS if it does not find the daemon.
func (m *Manager) ObserveProcesses(processes []gpu.Process) {
	bySlice := map[string][]int{}
	for _, p := range processes {
		if !p.Graphics { // MPS does not serve graphics
			bySlice[p.Slice] = append(bySlice[p.Slice], p.PID)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.processes = bySlice
}

// NonMPSProcesses returns the PIDs of processes that are known to run on a slice without MPS.
func (m *Manager) NonMPSProcesses(slice string) []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.daemons[slice]; d != nil {
		return d.nonMPS
	}
	return nil
}

// ClosedReasons returns, for each managed slice, why it accepts no new processes, or an empty string if it does.
func (m *Manager) ClosedReasons() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	reasons := map[string]string{}
	for slice, d := range m.daemons {
		reasons[slice] = d.closed
	}
	return reasons
}

// TerminateClients terminates the CUDA work of the clients of a slice whose PIDs match. It must be called before their processes are
// killed. It waits for the daemon until ctx is done.
func (m *Manager) TerminateClients(ctx context.Context, slice string, match func(pid int) bool) error {
	if !m.Enabled() {
		return nil
	}
	return m.control(slice).terminateClients(ctx, match)
}

// signalLoop makes a daemon's loop start its next iteration at once. It does not block.
func signalLoop(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Member describes a share to the MPS daemon of its slice. If the daemon supports namespaces (MPS v3, driver 615), each share has its own:
// processes that connect through its directory get its SMs, whatever their environment says, and no more memory than it allows. Older
// daemons rely on the environment of the processes.
type Member struct {
	Slice       string
	Name        string // lowercase letters, digits and underscores; at most 35 bytes, to fit the path of a socket
	SMs         share.PerMille
	Memory      share.Bytes // of each process, without ContextMemory
	LowPriority bool        // only the default: a process may choose another priority through its environment
}

// NewMember describes a share, with a name that is unique on its slice, for the slice's MPS daemon.
func NewMember(slice, name string, s share.Share, lowPriority bool) Member {
	return Member{Slice: slice, Name: name, SMs: s.SMLimit, Memory: s.Memory, LowPriority: lowPriority}
}

// HasLowPriority reports whether a share's kernels yield to those of others, which holds for best-effort shares on elastic slices.
func HasLowPriority(class share.Isolation, p share.Priority) bool {
	return class == share.Elastic && p != share.SLO
}

// LowPriorityVariable is an environment variable for processes of best-effort shares on elastic slices. Waiting blocks of their kernels are
// scheduled after those of clients with normal priority, so a long kernel of a training job yields at its next wave; block tokens cannot
// stop a kernel that has been launched. MPS treats it as a hint.
const LowPriorityVariable = "CUDA_MPS_CLIENT_PRIORITY=1"

// namespace is the MPS namespace of a share with its limits, or the error of creating it.
type namespace struct {
	Member
	err error
}

// HasNamespace reports whether a share has an MPS namespace, so that its processes cannot raise their limits.
func (m *Manager) HasNamespace(slice, name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.daemons[slice]
	if d == nil {
		return false
	}
	n, exists := d.namespaces[name]
	return exists && n.err == nil
}

// namespaceMissing returns why the MPS namespace of a share cannot be used yet, or an empty string if it can. The caller holds the
// manager's lock.
func (d *daemon) namespaceMissing(m Member) string {
	if !d.isVersion3 {
		return ""
	}
	n, exists := d.namespaces[m.Name]
	switch {
	case !exists || n.Member != m:
		return "the share's namespace is being created"
	case n.err != nil:
		return "the share's namespace cannot be created: " + n.err.Error()
	}
	return ""
}

// memberPipeDir returns the MPS pipe directory for processes of a share. If the daemon has namespaces, this is never the directory of the
// slice, which has no limits and contains the namespaces of all shares. The caller holds the manager's lock.
func (d *daemon) memberPipeDir(m Member) string {
	if !d.isVersion3 {
		return d.ClientDir(d.slice)
	}
	return filepath.Join(d.PipeDir(d.slice), serverName, m.Name)
}
