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

// TestFarewell: a pod whose grace is nearly over has its work on the device ended by the daemon, before the kubelet kills it. Its
// neighbour does not.
func TestFarewell(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, config.ReportStrangers, withMPS(t))
	r := c.rig
	c.granted("a", "GPU-0", 30, 50)
	c.granted("b", "GPU-0", 30, 50)
	leaving, staying := c.client("a", "main", "GPU-0"), c.client("b", "main", "GPU-0")
	r.leaves("a", 0)
	r.leaves("b", time.Hour)
	if line, err := leaving.lines.ReadString('\n'); err != nil || line != "mps says 810\n" {
		t.Errorf("%q, %v", line, err)
	}
	if !leaving.alive() || !staying.alive() {
		t.Error("a process was ended")
	}
	said := make(chan string, 1)
	go func() {
		line, _ := staying.lines.ReadString('\n')
		said <- line
	}()
	c.wait(5)
	select {
	case line := <-said:
		t.Errorf("the neighbour was told %q", line)
	default:
	}
}

// leaves has a pod deleted, with that much left of its grace.
func (r *rig) leaves(pod string, left time.Duration) {
	gone := running(placed(pod, "GPU-0", 5, 5))
	gone.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(left)}
	r.kubelet.AddPod(gone)
}

// listener listens for a text in a log.
type listener struct {
	text  string
	heard atomic.Bool
}

func (l *listener) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(l.text)) {
		l.heard.Store(true)
	}
	return len(line), nil
}

// TestFarewellHung: an agent that bids farewell to many containers by a daemon that hangs ends all the same, long before it is killed.
func TestFarewellHung(t *testing.T) {
	t.Parallel()
	const pods = 15 // one waiting for the other, they take twelve seconds, until the daemon is killed
	log := &listener{text: "failed to end the CUDA work of a terminating pod"}
	c := newCrowd(t, config.ReportStrangers, withMPS(t), func(o *Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })
	r := c.rig
	for n := range pods {
		c.granted(fmt.Sprint("p", n), "GPU-0", 5, 5)
	}
	daemon := r.daemon("GPU-0")
	if err := syscall.Kill(daemon, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(daemon, syscall.SIGCONT) })
	for n := range pods {
		r.leaves(fmt.Sprint("p", n), 0)
	}
	r.wait("farewell", log.heard.Load)
	began := time.Now()
	r.stop()
	if took := time.Since(began); took > pods*time.Second/2 {
		t.Errorf("the end took %v", took)
	}
}
