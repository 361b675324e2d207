package tokenserver_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
)

// survivor behaves as the hook does when its server is gone: it goes on as its page says until it has new pages.
type survivor struct {
	dir  string
	mu   sync.Mutex // guards client
	c    *tokenclient.Client
	runs atomic.Int64 // turns that it had
}

func newSurvivor(t *testing.T, dir string) *survivor {
	t.Helper()
	c, err := tokenclient.Dial(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	return &survivor{dir: dir, c: c}
}

// live works until the test is over, and comes back to each new server.
func (s *survivor) live(over <-chan struct{}) {
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

// work launches until the turn is over or the server is gone.
func (s *survivor) work() {
	for state(s.c) == tokenwire.Run && !s.cut() {
		s.c.VGPUs[0].Client.Launches.Add(1)
		time.Sleep(200 * time.Microsecond)
		s.c.VGPUs[0].Client.Busy.Add(uint64(200 * time.Microsecond))
	}
}

// close ends what it has left: a connection that the collector closes would be missing in another test's account.
func (s *survivor) close() { s.c.Close() }

// cut says that the server has hung up.
func (s *survivor) cut() bool {
	if err := s.c.Conn.SetReadDeadline(time.Now().Add(time.Microsecond)); err != nil {
		return true
	}
	_, err := s.c.Conn.Read(make([]byte, 1))
	netErr, ok := err.(interface{ Timeout() bool })
	return !ok || !netErr.Timeout()
}

func (s *survivor) reconnect() {
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

// mayRun says what the process goes by, and which page and token say so.
func (s *survivor) mayRun() (run bool, page uint64, generation uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	generation = s.c.VGPUs[0].Server.Generation.Load() // before the state, which changes first
	return state(s.c) == tokenwire.Run, s.c.Welcome.Session, generation
}

// bothRun says that both may launch at the same time: what is read twice without a change in between held all along.
func bothRun(a, b *survivor) bool {
	runA, pageA, generationA := a.mayRun()
	runB, pageB, generationB := b.mayRun()
	if !runA || !runB {
		return false
	}
	_, againA, changedA := a.mayRun()
	_, againB, changedB := b.mayRun()
	return pageA == againA && pageB == againB && generationA == changedA && generationB == changedB
}

// TestKilledServer kills the server under load again and again. Two containers of 60 % of the SMs may never run at the same
// time, and both have to get on.
func TestKilledServer(t *testing.T) {
	dir := tempDir(t)
	server := start(t, "server", dir)
	a, b := newSurvivor(t, filepath.Join(dir, "a")), newSurvivor(t, filepath.Join(dir, "b"))
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
		for end := time.Now().Add(400 * time.Millisecond); time.Now().Before(end) ||
			a.runs.Load() == hadA || b.runs.Load() == hadB; {
			if bothRun(a, b) {
				t.Fatalf("round %d: both run", round)
			}
			if time.Since(end) > patience {
				t.Fatalf("round %d: turns %d and %d", round, a.runs.Load()-hadA, b.runs.Load()-hadB)
			}
		}
		_ = server.Process.Kill()
		_ = server.Wait()
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
	if !c.WaitRun(0, patience) {
		t.Fatal("it never runs")
	}
}

// TestGhostHoldsItsPlace: a process that has not come back to a new server counts as running until its lease has ended.
func TestGhostHoldsItsPlace(t *testing.T) {
	dir := tempDir(t)
	server := start(t, "server", dir)
	lost := newSurvivor(t, filepath.Join(dir, "a"))
	defer lost.c.Close()
	_ = server.Process.Kill()
	_ = server.Wait()
	begin := time.Now()
	start(t, "server", dir)
	firstRun(t, filepath.Join(dir, "b"))
	if took := time.Since(begin); took < tokenserver.Lease {
		t.Errorf("the other container ran after %v, beside a process that may still run", took)
	}
}

// TestForgottenGhost is the control of the test above: without the list of sessions the other container runs at once.
func TestForgottenGhost(t *testing.T) {
	dir := tempDir(t)
	server := start(t, "server", dir)
	lost := newSurvivor(t, filepath.Join(dir, "a"))
	defer lost.c.Close()
	_ = server.Process.Kill()
	_ = server.Wait()
	if err := os.RemoveAll(filepath.Join(dir, "a", "sessions")); err != nil {
		t.Fatal(err)
	}
	start(t, "server", dir)
	begin := time.Now()
	firstRun(t, filepath.Join(dir, "b"))
	if took := time.Since(begin); took > tokenserver.Lease/2 {
		t.Errorf("the other container waits for %v", took)
	}
}

// TestReturnedGhostIsNone: as soon as the process is back, others need not wait.
func TestReturnedGhostIsNone(t *testing.T) {
	dir := tempDir(t)
	server := start(t, "server", dir)
	lost := newSurvivor(t, filepath.Join(dir, "a"))
	_ = server.Process.Kill()
	_ = server.Wait()
	start(t, "server", dir)
	begin := time.Now()
	lost.reconnect()
	defer lost.c.Close()
	firstRun(t, filepath.Join(dir, "b"))
	if took := time.Since(begin); took > tokenserver.Lease/2 {
		t.Errorf("the other container waits for %v for a process that is back", took)
	}
}
