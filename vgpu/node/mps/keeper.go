package mps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// Config is what a Keeper is made of.
type Config struct {
	Daemons
	Log     *slog.Logger
	Period  time.Duration     // between two looks at a slice; 0: a second
	Rule    supervisor.Config // zero: times that suit a look a second
	Changed func()            // called when a slice opens or closes, or who runs bare changes; never with a lock held
}

var usual = supervisor.Config{
	FirstDelay: time.Second, LastDelay: time.Minute, Settled: 5 * time.Minute, Patience: 10 * time.Second, Grace: 10 * time.Second,
}

// awaited is how long somebody who asked is wanted, until he holds the slice.
const awaited = 30 * time.Second

// Keeper keeps a daemon on each slice that is shared. It serves concurrent callers, and none of them waits for a daemon.
type Keeper struct {
	Config
	ctx   context.Context
	stop  context.CancelFunc
	loops sync.WaitGroup

	mu     sync.Mutex          // guards the following
	kept   map[string]*daemon  // by slice
	held   map[string][]Member // who shares slices now
	seen   map[string][]int    // processes on the slices, at the last look
	closed bool
}

// New makes a keeper; nothing runs until a slice is asked for or held.
func New(c Config) *Keeper {
	if c.Period == 0 {
		c.Period = time.Second
	}
	if c.Rule == (supervisor.Config{}) {
		c.Rule = usual
	}
	if c.Changed == nil {
		c.Changed = func() {}
	}
	k := &Keeper{Config: c, kept: map[string]*daemon{}}
	k.ctx, k.stop = context.WithCancel(context.Background())
	return k
}

// Close ends the looks. Daemons and their clients go on, for the next keeper.
func (k *Keeper) Close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.stop()
	k.loops.Wait()
}

// ErrClosed says that no new process may come to a slice now. It may in a moment.
var ErrClosed = errors.New("MPS does not serve the slice now")

// Open says whether a new process of a member may come to its slice, and wants the daemon to be there with what the member needs. It
// gives the directory of pipes to come by, also where no daemon runs. The error is ErrClosed.
func (k *Keeper) Open(m Member) (pipe string, err error) {
	if !k.Runs() {
		return k.Pipe(m.Slice), nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.keep(m.Slice)
	if !slices.Contains(k.held[m.Slice], m) {
		d.asked[m.Name] = asking{m, time.Now()}
	}
	if d.why == "" && !lives(d.pid, d.born) {
		d.why = "the daemon has ended" // which the next look would find out
	}
	why := cmp.Or(d.why, d.lacks(m))
	if why == "" {
		return d.pipeOf(m), nil
	}
	signal(d.wake)
	return "", fmt.Errorf("%w: %s", ErrClosed, why)
}

// Hold says who shares slices. The daemons of others end once they have no clients.
func (k *Keeper) Hold(members []Member) {
	if !k.Runs() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.held = map[string][]Member{}
	for _, m := range members {
		k.held[m.Slice] = append(k.held[m.Slice], m)
		delete(k.keep(m.Slice).asked, m.Name) // from now on it is wanted as long as it is held
	}
	for _, d := range k.kept {
		signal(d.wake)
	}
}

// keep begins to look after a slice. The caller holds the lock.
func (k *Keeper) keep(slice string) *daemon {
	d := k.kept[slice]
	if d == nil {
		d = newDaemon(k, slice)
		k.kept[slice] = d
		if !k.closed {
			k.loops.Go(d.loop)
		}
	}
	return d
}

// Saw says which processes the driver shows on the slices: those that are no clients run without MPS, and so without its
// limits. CUDA does so silently where a process does not find the daemon.
func (k *Keeper) Saw(processes []gpu.Process) {
	seen := map[string][]int{}
	for _, p := range processes {
		seen[p.Slice] = append(seen[p.Slice], p.PID)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen = seen
}

// Bare lists the processes that run without MPS for certain on a slice, by PID.
func (k *Keeper) Bare(slice string) []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	if d := k.kept[slice]; d != nil {
		return d.bare
	}
	return nil
}

// Slices lists those that are looked after, and why each takes no new process; empty where it does.
func (k *Keeper) Slices() map[string]string {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[string]string{}
	for slice, d := range maps.All(k.kept) {
		all[slice] = d.why
	}
	return all
}

// EndClients ends the CUDA work of the clients that are meant, before their processes are killed. It waits for the daemon, at most until
// the context ends.
func (k *Keeper) EndClients(ctx context.Context, slice string, meant func(pid int) bool) error {
	if !k.Runs() {
		return nil
	}
	return k.control(slice).endClients(ctx, meant)
}

// signal makes a loop look again. It never waits.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
