package agent

import (
	"bytes"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
)

// TestTermination: the daemon ends the CUDA work of a pod whose termination grace period is nearly over, and not that of its neighbour.
func TestTermination(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.ReportUnmanaged, withMPS(t))
	r := c.fixture
	c.granted("a", "GPU-0", 30, 50)
	c.granted("b", "GPU-0", 30, 50)
	leaving, staying := c.client("a", "main", "GPU-0"), c.client("b", "main", "GPU-0")
	r.terminate("a", 0)
	r.terminate("b", time.Hour)
	if line, err := leaving.lines.ReadString('\n'); err != nil || line != "mps says 810\n" {
		t.Errorf("%q, %v", line, err)
	}
	if !leaving.alive() || !staying.alive() {
		t.Error("a process was killed")
	}
	said := make(chan string, 1)
	go func() {
		line, _ := staying.lines.ReadString('\n')
		said <- line
	}()
	c.wait(5)
	select {
	case line := <-said:
		t.Errorf("the neighbour was sent %q", line)
	default:
	}
}

// terminate deletes a pod, with that much left of its termination grace period.
func (r *fixture) terminate(pod string, left time.Duration) {
	gone := running(placed(pod, "GPU-0", 5, 5))
	gone.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(left)}
	r.kubelet.AddPod(gone)
}

// logWatcher is a log writer that detects a text.
type logWatcher struct {
	text  string
	found atomic.Bool
}

func (l *logWatcher) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(l.text)) {
		l.found.Store(true)
	}
	return len(line), nil
}

// terminatingPods is the number of pods whose CUDA work a hung daemon is asked to end. One after the other they take twelve seconds, until the daemon is killed.
const terminatingPods = 15

// TestTerminationHungDaemon: an agent ends in time while a hung daemon is asked to end the CUDA work of many pods. On a busy machine it may
// be late, so it has four tries.
func TestTerminationHungDaemon(t *testing.T) {
	t.Parallel()
	var took []time.Duration
	for range 4 {
		last := endBesideHungDaemon(t)
		if last <= terminatingPods*time.Second/2 {
			return
		}
		took = append(took, last)
	}
	t.Errorf("the ends took %v", took)
}

// endBesideHungDaemon returns how long the end of an agent takes.
func endBesideHungDaemon(t *testing.T) time.Duration {
	t.Helper()
	log := &logWatcher{text: "failed to end the CUDA work of a terminating pod"}
	c := newProcessFixture(t, config.ReportUnmanaged, withMPS(t), func(o *Options) {
		o.Log, o.MPS.CommandTimeout = slog.New(slog.NewTextHandler(log, nil)), 0 // the default
	})
	r := c.fixture
	for n := range terminatingPods {
		c.granted(fmt.Sprint("p", n), "GPU-0", 5, 5)
	}
	daemon := r.daemon("GPU-0")
	if err := syscall.Kill(daemon, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(daemon, syscall.SIGCONT) })
	for n := range terminatingPods {
		r.terminate(fmt.Sprint("p", n), 0)
	}
	r.wait("the failure of the daemon", log.found.Load)
	began := time.Now()
	r.stop()
	return time.Since(began)
}
