// Package modelstore runs the model stores of a node: a process gshare-node store for each slice and namespace whose pods declare weights. A
// store outlives the agent that started it; later agents find it by the lock that it holds. A store that has ended is replaced by an empty
// one. A store that hangs is killed first.
package modelstore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/killpoint"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/store"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
)

// SocketName is the name of a store's socket in its public directory.
const SocketName = "store.sock"

// Time limits for a store. Tests extend those that are variables.
var (
	startTimeout = 8 * time.Second // until it serves; it opens the driver first
	killTimeout  = 2 * time.Second // until it has ended after SIGKILL; a store that hangs in the driver may never end
)

const (
	defaultAnswerTimeout = 2 * time.Second
	pollPeriod           = 5 * time.Millisecond
)

// errEnds is returned while a store that was killed has not ended yet.
var errEnds = errors.New("a model store has not ended after SIGKILL")

// killPoint marks a point between two steps at which the agent may be killed.
var killPoint = killpoint.At

// Store identifies a model store.
type Store struct {
	Slice     string // ID
	Namespace string
}

// ID returns an identifier that is short enough for the paths of sockets.
func (s Store) ID() string {
	sum := sha256.Sum256([]byte(s.Slice + "\n" + s.Namespace))
	return hex.EncodeToString(sum[:8])
}

// Config configures how stores are started.
type Config struct {
	Dir            string          // contains the directories of the stores; only the agent's user may enter these
	Grants         string          // the directory of the agent's records
	Program        string          // path of gshare-node
	DetachedCgroup cgroup.Detached // where stores are moved, as they outlive the agent's container
	Log            *slog.Logger

	// AnswerTimeout is how long a store may take to drop what is no longer needed before it counts as hung; 0: two seconds.
	AnswerTimeout time.Duration
}

// SurvivorsOf returns the processes that may have mapped weights of a store that has ended, or an error while they are not known.
type SurvivorsOf func(Store) (store.Survivors, error)

// Manager starts and ends stores. It is safe for concurrent use; calls for the same store wait for each other.
type Manager struct {
	Config
	mu    sync.Mutex // guards the following
	locks map[string]*sync.Mutex
	pids  map[string]int // of running stores, by ID, as last seen
	stuck map[string]int // PIDs of stores that have not ended after SIGKILL, by ID
}

// New returns a Manager. It knows no stores before the first call of Retain.
func New(c Config) *Manager {
	return &Manager{Config: c, locks: map[string]*sync.Mutex{}, pids: map[string]int{}, stuck: map[string]int{}}
}

// SocketDir returns the directory with the socket of a store, which containers mount. It stays the same when the store is replaced.
func (m *Manager) SocketDir(s Store) string { return filepath.Join(m.dir(s.ID()), "public") }

func (m *Manager) dir(id string) string            { return filepath.Join(m.Dir, id) }
func (m *Manager) sliceFile(id string) string      { return filepath.Join(m.dir(id), "slice") }
func (m *Manager) control(id string) store.Control { return store.Control(m.dir(id)) }

// lock serializes the operations on one store.
func (m *Manager) lock(id string) (unlock func()) {
	l := m.lockOf(id)
	l.Lock()
	return l.Unlock
}

func (m *Manager) lockOf(id string) *sync.Mutex {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[id] == nil {
		m.locks[id] = &sync.Mutex{}
	}
	return m.locks[id]
}

// Open starts a store on the device with this UUID, unless the store runs, and makes it drop weights that no pod declares any more. It
// returns nil once that is done. survivors is called if the store replaces one that has ended.
func (m *Manager) Open(ctx context.Context, s Store, uuid string, survivors SurvivorsOf) error {
	id := s.ID()
	defer m.lock(id)()
	if p, runs := m.control(id).Holder(); runs {
		defer p.Close()
		err := m.await(ctx, id, cmp.Or(m.AnswerTimeout, defaultAnswerTimeout), nil)
		if err == nil || ctx.Err() != nil {
			m.setPID(id, p.PID)
			return err
		}
		m.Log.Error("a model store does not answer and is replaced", "slice", s.Slice, "namespace", s.Namespace, "error", err)
		if err := kill(p); err != nil {
			return err
		}
	}
	m.setPID(id, 0)
	err := m.recordSurvivors(s, survivors)
	if err == nil {
		err = m.start(ctx, s, uuid)
	}
	if err != nil {
		return fmt.Errorf("model store of namespace %s: %w", s.Namespace, err)
	}
	return nil
}

// recordSurvivors makes the memory of an earlier store keep counting while processes may still have it.
func (m *Manager) recordSurvivors(s Store, survivors SurvivorsOf) error {
	c := m.control(s.ID())
	if !c.HasServed() {
		return nil
	}
	left, err := survivors(s)
	if err != nil {
		return err
	}
	killPoint("store survivors")
	return c.AddSurvivors(left)
}

// Trim makes the stores of a slice drop weights that no pod declares any more, and returns once their memory is free. It kills a store that
// does not answer, which also frees the memory of weights without users.
func (m *Manager) Trim(ctx context.Context, slice string, namespaces []string) (all error) {
	for _, n := range namespaces {
		id := Store{slice, n}.ID()
		unlock := m.lock(id)
		if p, runs := m.control(id).Holder(); runs {
			if err := m.await(ctx, id, cmp.Or(m.AnswerTimeout, defaultAnswerTimeout), nil); err != nil && ctx.Err() == nil {
				m.Log.Error("a model store does not answer and is killed", "slice", slice, "namespace", n, "error", err)
				all = errors.Join(all, kill(p))
			}
			p.Close()
		}
		unlock()
	}
	return errors.Join(all, ctx.Err())
}

// await repeatedly asks a store to drop what is no longer needed, until it answers. ended is closed when the store's process ends; nil: the
// end of the process is not known.
func (m *Manager) await(ctx context.Context, id string, limit time.Duration, ended <-chan struct{}) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := m.control(id).Trim(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ended:
			p, other := m.control(id).Holder() // a store that was started by an agent that was killed
			p.Close()
			if !other {
				return errors.New(m.lastLine(id))
			}
			ended = nil
		case <-ctx.Done():
			return err
		case <-time.After(pollPeriod):
		}
	}
}

// start starts a store and waits until it serves.
func (m *Manager) start(ctx context.Context, s Store, uuid string) error {
	id := s.ID()
	if err := errors.Join(os.MkdirAll(m.dir(id), 0o700), os.MkdirAll(m.SocketDir(s), 0o755)); err != nil {
		return err
	}
	killPoint("store directory")
	if err := atomicfile.WriteFile(m.sliceFile(id), []byte(s.Slice), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(m.control(id).LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(m.Program, "store", "--slice", s.Slice, "--namespace", s.Namespace, "--grants", m.Grants,
		"--socket", filepath.Join(m.SocketDir(s), SocketName), "--control", m.dir(id))
	cmd.Env = append(os.Environ(), "CUDA_VISIBLE_DEVICES="+uuid)
	cmd.Stderr, cmd.SysProcAttr = log, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	killPoint("store started")
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // the store's log tells why it ended
		close(ended)
	}()
	err = m.DetachedCgroup.Enter(cmd.Process.Pid)
	if err == nil {
		killPoint("store detached")
		m.setPID(id, cmd.Process.Pid)
		err = m.await(ctx, id, startTimeout, ended)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return err
	}
	m.Log.Info("started a model store", "slice", s.Slice, "namespace", s.Namespace, "pid", cmd.Process.Pid)
	killPoint("store serves")
	return nil
}

// lastLine returns the last line of a store's log.
func (m *Manager) lastLine(id string) string {
	text, err := os.ReadFile(m.control(id).LogFile())
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; err == nil && last != "" {
		return fmt.Sprintf("it has ended: %.200s", last)
	}
	return "it has ended"
}

// Retain ends the stores whose IDs are not wanted, and removes their directories. Weights that a program still has mapped live until the
// program ends. Retain ends a store only if wanted says so while Open of the same store waits. It does not wait for operations on stores that
// are wanted: those on a store that hangs take seconds.
func (m *Manager) Retain(wanted func(id string) bool) (all error) {
	entries, err := os.ReadDir(m.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		all = errors.Join(all, m.retain(e.Name(), wanted))
	}
	return errors.Join(err, all)
}

// RetainOn does the same as Retain, but only for stores of these slices and for stores whose slice is not known.
func (m *Manager) RetainOn(on []string, wanted func(id string) bool) error {
	return m.Retain(func(id string) bool {
		slice, err := os.ReadFile(m.sliceFile(id))
		return err == nil && !slices.Contains(on, string(slice)) || wanted(id)
	})
}

func (m *Manager) retain(id string, wanted func(id string) bool) error {
	l := m.lockOf(id)
	if !l.TryLock() {
		if wanted(id) {
			return nil
		}
		l.Lock()
	}
	defer l.Unlock()
	p, runs := m.control(id).Holder()
	defer p.Close()
	if wanted(id) {
		if runs {
			m.setPID(id, p.PID)
		}
		return nil
	}
	if runs {
		if err := m.end(id, p); err != nil {
			return err
		}
		killPoint("store ended")
		m.Log.Info("ended a model store", "pid", p.PID)
	}
	m.setPID(id, 0)
	return os.RemoveAll(m.dir(id))
}

// Stop ends all stores and removes their directories and their cgroup.
func (m *Manager) Stop() error {
	if err := m.Retain(func(string) bool { return false }); err != nil {
		return err
	}
	return m.DetachedCgroup.Remove()
}

// end kills a store that nobody needs. It waits only once for a store that hangs, as each grant and each release calls it again.
func (m *Manager) end(id string, p process.Process) error {
	m.mu.Lock()
	stuck := m.stuck[id] == p.PID
	m.mu.Unlock()
	limit := killTimeout
	if stuck {
		limit = 0
	}
	err := killWithin(p, limit)
	if errors.Is(err, errEnds) {
		m.mu.Lock()
		m.stuck[id] = p.PID
		m.mu.Unlock()
	}
	return err
}

// kill kills a store and waits until it has ended.
func kill(p process.Process) error { return killWithin(p, killTimeout) }

func killWithin(p process.Process, limit time.Duration) error {
	if err := p.Kill(); err != nil && p.Alive() {
		return err
	}
	for end := time.Now().Add(limit); p.Alive(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return errEnds
		}
	}
	return nil
}

// setPID records which process is the store; 0: it has ended.
func (m *Manager) setPID(id string, pid int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if pid == 0 {
		delete(m.pids, id)
		delete(m.stuck, id)
	} else {
		m.pids[id] = pid
	}
}

// Owns reports whether a process outside of containers is a store, or was started by a store to compute a digest.
func (m *Manager) Owns(pid int) bool {
	session, err := unix.Getsid(pid)
	if err != nil {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pids {
		if p == session {
			return true
		}
	}
	return false
}
