package tokenserver_test

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// whole is a share of all SMs for at least 45 % and at most all of the time.
var whole = share.Share{SMRequest: 1000, SMLimit: 1000, QuotaRequest: 450, QuotaLimit: 1000, Memory: gib}

// TestKilledProcessFreesItsSMs kills a process that has the whole device, and measures the time until the next one runs. Most of
// that is spent on ending the killed process, which needs a processor once more; the end of a pipe that it holds shows how long
// that takes.
func TestKilledProcessFreesItsSMs(t *testing.T) {
	r := newFixture(t, tempDir(t))
	most, little := whole, whole // so that the next hardly ever runs because its own turn has come
	most.QuotaRequest, little.QuotaRequest = 900, 50
	r.add(t, "a", most)
	r.add(t, "b", little)
	var took, died []time.Duration
	for range 50 {
		run, end := killHolder(t, r)
		took, died = append(took, run), append(died, end)
	}
	slices.Sort(took)
	slices.Sort(died)
	n := len(took)
	t.Logf("the next process ran after %v (median of %d), %v (nine of ten), %v (all); the pipe ended after %v, %v, %v",
		took[n/2], n, took[n*9/10], took[n-1], died[n/2], died[n*9/10], died[n-1])
	if bound := max(20*time.Millisecond, 3*died[n/2]); took[n/2] > bound {
		t.Errorf("the median is %v, the bound %v", took[n/2], bound)
	}
}

// killHolder kills a running process of container a. It returns when one of b ran, and when a pipe of the killed one was closed.
func killHolder(t *testing.T, r *fixture) (run, end time.Duration) {
	t.Helper()
	pipe, held, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	holder := start(t, "work", filepath.Join(r.dir, "a"), held)
	held.Close()
	next := r.dial(t, "b")
	defer next.Close()
	last := waitWhileOther(t, r, "a", next)
	ended := make(chan time.Time)
	begin := time.Now()
	go func() {
		_, _ = pipe.Read(make([]byte, 1))
		ended <- time.Now()
	}()
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if !next.WaitToken(0, last, timeout) {
		t.Fatal("the next process does not run")
	}
	run = time.Since(begin)
	end = (<-ended).Sub(begin)
	_ = holder.Wait()
	return run, end
}

// waitWhileOther asks for a token while a process of the other container has just received one. It returns the sequence number of the client's last
// decision before that: a token that follows has another.
func waitWhileOther(t *testing.T, r *fixture, other string, c *tokenclient.Client) (last uint64) {
	t.Helper()
	running := func() bool {
		for _, status := range r.Snapshot() {
			if status.ID == other {
				return status.VGPUs[0].Running
			}
		}
		return false
	}
	eventually(t, "the holder runs", func() bool {
		if !running() {
			return false
		}
		last = c.VGPUs[0].Server.Sequence.Load()
		if err := c.Send(&tokenwire.Need{}); err != nil {
			t.Fatal(err)
		}
		return state(c) != tokenwire.Run && running() && c.VGPUs[0].Server.Sequence.Load() == last
	})
	return last
}

// TestChildHoldsTheSocket kills a process whose child still holds its connection, and checks that the session ends.
func TestChildHoldsTheSocket(t *testing.T) {
	r := newFixture(t, tempDir(t))
	container := r.add(t, "a", half)
	cmd := command(t, "fork", filepath.Join(r.dir, "a"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	if line, err := lines.ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
	text, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(child, syscall.SIGKILL)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if syscall.Kill(child, 0) != nil {
		t.Fatal("the child is gone: the test shows nothing")
	}
	eventually(t, "the session ends with its process", func() bool { return container.Connections() == 0 })
}

// TestDisconnectedProcessStops checks that the page of a process whose connection was closed says PAUSE.
func TestDisconnectedProcessStops(t *testing.T) {
	r := newFixture(t, tempDir(t))
	container := r.add(t, "a", half)
	c := r.dial(t, "a")
	if !c.WaitRun(0, timeout) {
		t.Fatal("no token")
	}
	if err := c.Send(&tokenwire.Hello{}); err != nil { // one too many
		t.Fatal(err)
	}
	eventually(t, "it is cut off", func() bool { return container.Connections() == 0 })
	if state(c) != tokenwire.Pause {
		t.Errorf("its page says %v", state(c))
	}
}

// TestInheritedConnection connects on behalf of another process, as gshare run does without root, and keeps the connection open.
func TestInheritedConnection(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.HelloTimeout = 20 * time.Millisecond
	container := r.add(t, "a", half, func(s *tokenserver.Spec) { s.Launcher = os.Getpid() })
	conn := connect(t, r, "a")
	if err := conn.SetReadDeadline(time.Now().Add(2 * r.HelloTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a program may take its time, but the connection ends: %v", err)
	}
	socket, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	inheritor := start(t, "inherit", "", socket)
	if got := container.Status().VGPUs[0].Processes[0].PID; got != inheritor.Process.Pid {
		t.Errorf("process %d, want %d", got, inheritor.Process.Pid)
	}
	_ = inheritor.Process.Kill()
	_ = inheritor.Wait()
	eventually(t, "the session ends with its process", func() bool { return container.Connections() == 0 })
}

// TestMemoryOfAnExitedProcess checks that the memory of a process, and no other, is released with it.
func TestMemoryOfAnExitedProcess(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.add(t, "a", half)
	dead, alive := r.dial(t, "a"), r.dial(t, "a")
	page := alive.VGPUs[0].Container
	page.Memory.Add(700)
	dead.VGPUs[0].Client.Memory.Store(300)
	alive.VGPUs[0].Client.Memory.Store(400)
	dead.Close()
	eventually(t, "the memory of the dead is free", func() bool { return page.Memory.Load() == 400 })
}

// TestMemoryPeak checks that the most memory of a container is remembered after it is freed, without what is parked, and never above the share.
func TestMemoryPeak(t *testing.T) {
	r := newFixture(t, tempDir(t))
	container := r.add(t, "a", half)
	page := r.dial(t, "a").VGPUs[0].Container
	peak := func() share.Bytes { return container.Status().VGPUs[0].Peak }
	for n, step := range []struct {
		used uint64
		want share.Bytes
	}{{0, 0}, {700, 700}, {300, 700}, {900, 900}, {0, 900}, {1 << 62, gib}, {0, gib}} {
		page.Memory.Store(step.used)
		if got := peak(); got != step.want {
			t.Errorf("step %d: %d bytes, want %d", n, got, step.want)
		}
	}
	other := r.add(t, "b", half)
	if _, err := other.Park(); err != nil {
		t.Fatal(err)
	}
	if got := other.Status().VGPUs[0].Peak; got != 0 {
		t.Errorf("%d bytes that were only taken back", got)
	}
}

// TestMemoryOfDisconnectedProcess checks that the memory of a process that has closed its connection counts until it has ended, that the
// process is not listed as one with a session, and that it counts for the number of processes that the container may have.
func TestMemoryOfDisconnectedProcess(t *testing.T) {
	r := newFixture(t, tempDir(t), func(c *tokenserver.Config) { c.MaxConnections = 2 })
	container := r.add(t, "a", half)
	keeper := start(t, "keep", filepath.Join(r.dir, "a"))
	eventually(t, "its connection has ended", func() bool { return container.Connections() == 0 })
	other := r.dial(t, "a")
	page := other.VGPUs[0].Container
	if got := answer(t, connect(t, r, "a")); got != syscall.EAGAIN {
		t.Errorf("a third process was answered %v", got)
	}
	status := container.Status().VGPUs[0]
	if status.Used != 400 || page.Memory.Load() != 400 || len(status.Processes) != 1 || status.Processes[0].PID != os.Getpid() {
		t.Errorf("the container has %d bytes, in the processes %+v", status.Used, status.Processes)
	}
	_ = keeper.Process.Kill()
	_ = keeper.Wait()
	eventually(t, "its memory is free", func() bool { return page.Memory.Load() == 0 })
	other.Close()
	eventually(t, "the container is not in use", func() bool { return !container.InUse() })
}

// TestReconnectedProcessCountsOnce checks that a process that takes its memory to the pages of a new session, as the hook does, counts once.
func TestReconnectedProcessCountsOnce(t *testing.T) {
	r := newFixture(t, tempDir(t))
	container := r.add(t, "a", half)
	first := r.dial(t, "a")
	page := first.VGPUs[0].Container
	page.Memory.Add(300)
	first.VGPUs[0].Client.Memory.Add(300)
	first.Conn.Close()
	eventually(t, "the first connection has ended", func() bool { return container.Connections() == 0 })
	second := r.dial(t, "a")
	second.VGPUs[0].Client.Memory.Store(first.VGPUs[0].Client.Memory.Swap(0))
	first.Close()
	again := r.dial(t, "a") // its welcome shows that the server still serves
	if got := again.VGPUs[0].Container.Memory.Load(); got != 300 {
		t.Errorf("the container has %d bytes", got)
	}
	second.Close()
	eventually(t, "its memory is free", func() bool { return again.VGPUs[0].Container.Memory.Load() == 0 })
}

// TestClosedServerLeavesSums checks that a server that closes, for the next one, does not change what the container's processes know of each
// other's memory, or each could have the whole limit until it notices.
func TestClosedServerLeavesSums(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.add(t, "a", half)
	c := r.dial(t, "a")
	page := c.VGPUs[0].Container
	page.Memory.Add(300)
	c.VGPUs[0].Client.Memory.Add(300)
	r.Close()
	if got := page.Memory.Load(); got != 300 {
		t.Errorf("the container has %d bytes after the server has closed", got)
	}
}

// TestLyingClient checks that the server bounds forged values of memory and device time.
func TestLyingClient(t *testing.T) {
	r := newFixture(t, tempDir(t))
	container := r.add(t, "a", half)
	liar, alive := r.dial(t, "a"), r.dial(t, "a")
	page := alive.VGPUs[0].Container
	page.Memory.Store(700)
	liar.VGPUs[0].Client.Memory.Store(1 << 60)
	liar.VGPUs[0].Client.Busy.Store(1 << 63)
	eventually(t, "the claim is read", func() bool {
		liar.VGPUs[0].Client.Busy.Add(1 << 40)
		if err := liar.Send(&tokenwire.Need{}); err != nil {
			t.Fatal(err)
		}
		return container.Status().VGPUs[0].Busy > 0
	})
	if busy := container.Status().VGPUs[0].Busy; busy > time.Second {
		t.Errorf("busy for %v of the last second", busy)
	}
	liar.Close()
	eventually(t, "the liar is gone", func() bool { return container.Connections() == 1 })
	if got := page.Memory.Load(); got > 700 {
		t.Errorf("the sum wrapped round: %d", got)
	}
}

// TestProcessesOfAContainerTakeTurns runs two processes under one share: never both at once, and both make progress.
func TestProcessesOfAContainerTakeTurns(t *testing.T) {
	r := newFixture(t, tempDir(t))
	container := r.add(t, "a", whole)
	start(t, "work", filepath.Join(r.dir, "a"))
	start(t, "work", filepath.Join(r.dir, "a"))
	before := container.Status().VGPUs[0].Processes
	if len(before) != 2 {
		t.Fatalf("%d processes", len(before))
	}
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		if running := countRunning(container.Status().VGPUs[0].Processes); running > 1 {
			t.Fatal("both run")
		}
	}
	eventually(t, "both get on", func() bool { return allAdvanced(container, before) })
	sum := before[0].Launches + before[1].Launches
	eventually(t, "the launches of both are counted", func() bool { return container.Status().VGPUs[0].Launches > sum })
}

func countRunning(processes []tokenserver.ProcessStatus) (n int) {
	for _, p := range processes {
		if p.Running {
			n++
		}
	}
	return n
}

func allAdvanced(c *tokenserver.Container, before []tokenserver.ProcessStatus) bool {
	for _, now := range c.Status().VGPUs[0].Processes {
		for _, then := range before {
			if now.PID == then.PID && now.Launches <= then.Launches {
				return false
			}
		}
	}
	return true
}
