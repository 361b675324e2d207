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

	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// whole takes all SMs for half of the time, and may have all of the time.
var whole = share.Share{SMRequest: 1000, SMLimit: 1000, QuotaRequest: 450, QuotaLimit: 1000, Memory: gib}

// TestKilledHolderFreesTheNext kills a process that has the whole device, and takes the time until the next one runs.
func TestKilledHolderFreesTheNext(t *testing.T) {
	r := newRig(t, tempDir(t))
	r.add(t, "a", whole)
	r.add(t, "b", whole)
	var took []time.Duration
	for range 10 {
		holder := start(t, "work", filepath.Join(r.dir, "a"))
		next := r.dial(t, "b")
		waitWhileOther(t, r, "a", next)
		tokens := &next.VGPUs[0].Server.Sequence
		begin, last := time.Now(), tokens.Load()
		if err := holder.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for tokens.Load() == last {
			if time.Since(begin) > time.Second {
				t.Fatal("the next process does not run")
			}
		}
		took = append(took, time.Since(begin))
		_ = holder.Wait()
		next.Close()
	}
	slices.Sort(took)
	t.Logf("the next process ran after %v (median), %v (maximum)", took[len(took)/2], took[len(took)-1])
	if took[len(took)/2] > 20*time.Millisecond {
		t.Errorf("the median is %v", took[len(took)/2])
	}
}

// waitWhileOther lets a client ask for a token while a process of the other container has just got one.
func waitWhileOther(t *testing.T, r *rig, other string, c *tokenclient.Client) {
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
		if err := c.Send(&tokenwire.Need{}); err != nil {
			t.Fatal(err)
		}
		return state(c) != tokenwire.Run && running()
	})
}

// TestChildWithTheSocket kills a process whose child goes on holding its connection.
func TestChildWithTheSocket(t *testing.T) {
	r := newRig(t, tempDir(t))
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

// TestCutOffProcessStops: a process whose connection ends is not left with a page that says RUN.
func TestCutOffProcessStops(t *testing.T) {
	r := newRig(t, tempDir(t))
	container := r.add(t, "a", half)
	c := r.dial(t, "a")
	if !c.WaitRun(0, time.Second) {
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

// TestHeir connects for another process, as gshare run does without root, and goes on holding the connection.
func TestHeir(t *testing.T) {
	r := newRig(t, tempDir(t))
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
	heir := start(t, "heir", "", socket)
	if got := container.Status().VGPUs[0].Processes[0].PID; got != heir.Process.Pid {
		t.Errorf("process %d, want %d", got, heir.Process.Pid)
	}
	_ = heir.Process.Kill()
	_ = heir.Wait()
	eventually(t, "the session ends with its process", func() bool { return container.Connections() == 0 })
}

// TestMemoryOfTheDead checks that what a process held goes with it, and only that.
func TestMemoryOfTheDead(t *testing.T) {
	r := newRig(t, tempDir(t))
	r.add(t, "a", half)
	dead, alive := r.dial(t, "a"), r.dial(t, "a")
	page := alive.VGPUs[0].Container
	page.Memory.Add(700)
	dead.VGPUs[0].Client.Memory.Store(300)
	alive.VGPUs[0].Client.Memory.Store(400)
	dead.Close()
	eventually(t, "the memory of the dead is free", func() bool { return page.Memory.Load() == 400 })
}

// TestLyingClient holds what a client may claim against what the server makes of it.
func TestLyingClient(t *testing.T) {
	r := newRig(t, tempDir(t))
	container := r.add(t, "a", half)
	liar, alive := r.dial(t, "a"), r.dial(t, "a")
	page := alive.VGPUs[0].Container
	page.Memory.Store(700)
	liar.VGPUs[0].Client.Memory.Store(1 << 60)
	liar.VGPUs[0].Client.Busy.Store(1 << 63)
	if err := liar.Send(&tokenwire.Need{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the claim is read", func() bool { return container.Status().VGPUs[0].Busy > 0 })
	if busy := container.Status().VGPUs[0].Busy; busy > time.Second {
		t.Errorf("busy for %v of the last second", busy)
	}
	liar.Close()
	eventually(t, "the liar is gone", func() bool { return container.Connections() == 1 })
	if got := page.Memory.Load(); got > 700 {
		t.Errorf("the sum wrapped round: %d", got)
	}
}

// TestProcessesOfAContainerTakeTurns lets two processes work under one share: never both at once, and both get on.
func TestProcessesOfAContainerTakeTurns(t *testing.T) {
	r := newRig(t, tempDir(t))
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
