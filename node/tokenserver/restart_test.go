package tokenserver_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/lease"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// reconnectingClient behaves as the hook does when its server dies: it keeps the state of its page until it has new pages.
type reconnectingClient struct {
	dir  string
	mu   sync.Mutex // guards client
	c    *tokenclient.Client
	runs atomic.Int64 // turns that it had
}

func newReconnectingClient(t *testing.T, dir string) *reconnectingClient {
	t.Helper()
	c, err := tokenclient.Dial(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &reconnectingClient{dir: dir, c: c}
}

// live works until the test is over, and reconnects to each new server.
func (s *reconnectingClient) live(over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		default:
		}
		if !s.c.WaitRun(0, 100*time.Millisecond) || s.cut() {
			s.reconnect()
			continue
		}
		s.runs.Add(1)
		s.work()
	}
}

// work launches until the turn is over or the server dies.
func (s *reconnectingClient) work() {
	for state(s.c) == tokenwire.Run && !s.cut() {
		s.c.VGPUs[0].Client.Launches.Add(1)
		time.Sleep(200 * time.Microsecond)
		s.c.VGPUs[0].Client.Busy.Add(uint64(200 * time.Microsecond))
	}
}

// close closes the connection. One that the garbage collector closes would confuse the leak tests.
func (s *reconnectingClient) close() { s.c.Close() }

// cut reports whether the server has closed the connection.
func (s *reconnectingClient) cut() bool {
	if err := s.c.Conn.SetReadDeadline(time.Now().Add(time.Microsecond)); err != nil {
		return true
	}
	_, err := s.c.Conn.Read(make([]byte, 1))
	netErr, ok := err.(interface{ Timeout() bool })
	return !ok || !netErr.Timeout()
}

func (s *reconnectingClient) reconnect() {
	c, err := tokenclient.Dial(s.dir, s.c.Welcome.Session)
	if err != nil {
		time.Sleep(20 * time.Millisecond)
		return
	}
	s.mu.Lock()
	old := s.c
	s.c = c
	s.mu.Unlock()
	_ = c.Send(&tokenwire.Snapshot{}) // now that it goes by the new page
	old.Close()
}

// mayRun reports whether the process may run, with the session and generation of the page that says so.
func (s *reconnectingClient) mayRun() (run bool, page uint64, generation uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	generation = s.c.VGPUs[0].Server.Generation.Load() // before the state, which changes first
	return state(s.c) == tokenwire.Run, s.c.Welcome.Session, generation
}

// bothRun reports whether both may launch at the same time. A state that is read twice without a change between is valid for the
// whole time.
func bothRun(a, b *reconnectingClient) bool {
	runA, pageA, generationA := a.mayRun()
	runB, pageB, generationB := b.mayRun()
	if !runA || !runB {
		return false
	}
	_, againA, changedA := a.mayRun()
	_, againB, changedB := b.mayRun()
	return pageA == againA && pageB == againB && generationA == changedA && generationB == changedB
}

// TestLockFileIsKept checks that a restarted server keeps the file on which processes hold locks.
func TestLockFileIsKept(t *testing.T) {
	dir := tempDir(t)
	var before os.FileInfo
	for range 2 {
		r := newFixture(t, dir)
		r.add(t, "a", half)
		info, err := os.Stat(filepath.Join(dir, "a", "processes-1"))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != 0o444 {
			t.Errorf("mode %v", info.Mode())
		}
		if before != nil && !os.SameFile(before, info) {
			t.Error("the file was replaced")
		}
		before = info
		r.Close()
	}
}

// TestLockFileOfOwner checks that only the owner of a container can open its lock file, and nobody can write it or make it writable, also after
// a server that gave the file to the owner.
func TestLockFileOfOwner(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can run a process as another user")
	}
	dir, owner := tempDir(t), uint32(4711)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "a", "processes-1")
	can := func(uid uint32, script string) bool {
		command := exec.Command("sh", "-c", script, file)
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		return command.Run() == nil
	}
	for range 2 {
		r := newFixture(t, dir)
		r.add(t, "a", half, func(s *tokenserver.Spec) { s.Owner = &owner })
		if !can(owner, `exec 3<"$0"`) {
			t.Error("the owner cannot open the file")
		}
		if can(4712, `exec 3<"$0"`) {
			t.Error("another user can open the file")
		}
		if can(owner, `chmod 600 "$0"`) || can(owner, `echo x >"$0"`) {
			t.Error("the owner can write the file, and so fill the agent's file system")
		}
		r.Close()
		if err := os.Chown(file, int(owner), -1); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLeaseOnLockFile checks that a server starts at once although a process of a container holds a lease on the lock file, as root in a
// container can, and still serves that container.
func TestLeaseOnLockFile(t *testing.T) {
	dir := tempDir(t)
	r := newFixture(t, dir)
	r.add(t, "a", half)
	r.Close()
	lease.Hold(t, filepath.Join(dir, "a", "processes-1"))
	r = newFixture(t, dir)
	served := make(chan struct{})
	go func() {
		defer close(served)
		r.add(t, "a", half)
	}()
	select {
	case <-served:
		r.dialAgain(t, "a")
	case <-time.After(10 * time.Second): // the kernel ends the lease after 45
		t.Error("the server waits for the lease")
		<-served
	}
}

// TestKilledServer kills the server under load again and again. Two containers of 60 % of the SMs must never run at the same time,
// and both must make progress. Once the lease of a client that has not reconnected is over, as on a busy machine, the other may run.
func TestKilledServer(t *testing.T) {
	dir, started := tempDir(t), time.Now()
	server := start(t, "server", dir)
	a, b := newReconnectingClient(t, filepath.Join(dir, "a")), newReconnectingClient(t, filepath.Join(dir, "b"))
	over := make(chan struct{})
	var done sync.WaitGroup
	defer a.close()
	defer b.close()
	done.Go(func() { a.live(over) })
	done.Go(func() { b.live(over) })
	defer done.Wait()
	defer close(over)
	for round := range 6 {
		hadA, hadB := a.runs.Load(), b.runs.Load()
		for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end) ||
			a.runs.Load() == hadA || b.runs.Load() == hadB; {
			if bothRun(a, b) && time.Since(started) < tokenserver.Lease {
				t.Fatalf("round %d: both run", round)
			}
			if time.Since(end) > timeout {
				t.Fatalf("round %d: turns %d and %d", round, a.runs.Load()-hadA, b.runs.Load()-hadB)
			}
		}
		_ = server.Process.Kill()
		_ = server.Wait()
		started = time.Now()
		server = start(t, "server", dir)
	}
}

// firstRun connects and returns when the process may run.
func firstRun(t *testing.T, dir string) {
	t.Helper()
	c, err := tokenclient.Dial(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !c.WaitRun(0, timeout) {
		t.Fatal("it never runs")
	}
}

// TestLostClientKeepsItsSMs checks that a process which does not reconnect to a new server counts as running until its lease ends.
func TestLostClientKeepsItsSMs(t *testing.T) {
	dir := tempDir(t)
	server := start(t, "server", dir)
	lost := newReconnectingClient(t, filepath.Join(dir, "a"))
	defer lost.c.Close()
	_ = server.Process.Kill()
	_ = server.Wait()
	clock := &handClock{now: time.Hour}
	begin := clock.Now()
	r := newFixture(t, dir, func(c *tokenserver.Config) { c.Clock = clock })
	r.add(t, "a", half)
	other := r.add(t, "b", half)
	c := r.dial(t, "b")
	if err := c.Send(&tokenwire.Need{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server knows that a process waits", func() bool { return other.Status().VGPUs[0].Waiting == 1 })
	for state(c) != tokenwire.Run {
		if clock.tick(); clock.Now()-begin > 2*tokenserver.Lease {
			t.Fatal("the other container never runs")
		}
	}
	if took := clock.Now() - begin; took < tokenserver.Lease {
		t.Errorf("the other container ran after %v, beside a process that may still run", took)
	}
}

// runsWithinLease measures, in new directories, how long the other container waits for its first turn, and checks that it once is much less
// than a lease. If it has to wait for a lease to end it never is, on an idle machine or on a busy one.
func runsWithinLease(t *testing.T, measure func(t *testing.T, dir string) time.Duration) {
	t.Helper()
	var took []time.Duration
	for range 5 {
		took = append(took, measure(t, tempDir(t)))
		if took[len(took)-1] < tokenserver.Lease/2 {
			return
		}
	}
	t.Errorf("the other container waits for %v", took)
}

// TestLostClientWithoutSession is the negative control of the test above: without the session file, the other container runs at
// once.
func TestLostClientWithoutSession(t *testing.T) {
	runsWithinLease(t, func(t *testing.T, dir string) time.Duration {
		server := start(t, "server", dir)
		lost := newReconnectingClient(t, filepath.Join(dir, "a"))
		defer lost.c.Close()
		_ = server.Process.Kill()
		_ = server.Wait()
		if err := os.RemoveAll(filepath.Join(dir, "a", "sessions")); err != nil {
			t.Fatal(err)
		}
		start(t, "server", dir)
		begin := time.Now()
		firstRun(t, filepath.Join(dir, "b"))
		return time.Since(begin)
	})
}

// TestReconnectEndsTheLease checks that others need not wait once the process has reconnected.
func TestReconnectEndsTheLease(t *testing.T) {
	runsWithinLease(t, func(t *testing.T, dir string) time.Duration {
		server := start(t, "server", dir)
		lost := newReconnectingClient(t, filepath.Join(dir, "a"))
		_ = server.Process.Kill()
		_ = server.Wait()
		start(t, "server", dir)
		begin := time.Now()
		lost.reconnect()
		defer lost.c.Close()
		firstRun(t, filepath.Join(dir, "b"))
		return time.Since(begin)
	})
}
