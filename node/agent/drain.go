package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/injection"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/unixsocket"
)

const (
	// drainTimeout limits how long a hung MPS daemon delays the preStop hook of a container.
	drainTimeout = 2 * time.Second
	// drainInterval is the least time between two drains of a container. Each of them occupies the slice's MPS daemon, which others need, too.
	drainInterval = time.Second
	// drainMemory is for how long a drained container is not reported if it is killed.
	drainMemory = time.Hour
)

var errDrainedBefore = errors.New("the container's work was ended less than a second ago")

// drains ends the CUDA work of containers whose preStop hook runs gshare-drain (hook/drain).
type drains struct {
	*Options
	metrics *metrics
	slices  *sliceRuntime
	grants  *grantStore

	mu   sync.Mutex                     // guards the following
	last map[cgroup.Container]time.Time // when a container was drained last, if that is less than drainMemory ago
}

// loop serves gshare-drain until the context ends.
func (d *drains) loop(ctx context.Context) {
	dir := d.slices.host.Drain
	if !d.MPS.Enabled() || dir == "" {
		return
	}
	for ; ctx.Err() == nil; sleep(ctx, time.Second) {
		if err := d.serve(ctx, filepath.Join(dir, injection.DrainSocket)); err != nil && ctx.Err() == nil {
			d.Log.Error("containers cannot have their CUDA work ended before they are stopped", "error", err)
		}
	}
}

// serve accepts connections until the context ends, and waits for the drains in progress.
func (d *drains) serve(ctx context.Context, socket string) error {
	listener, err := unixsocket.Listen("unix", socket, 0o666, unixsocket.NewLimiter())
	if err != nil {
		return err
	}
	defer listener.Close()
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		conn, err := listener.AcceptUnix()
		if err != nil {
			return err
		}
		serving.Go(func() { d.answer(ctx, conn) })
	}
}

// answer drains the container of the process that has connected, and writes why that failed, if so.
func (d *drains) answer(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	c, err := d.containerOf(conn)
	if err == nil {
		err = d.drain(ctx, c)
	}
	if err != nil {
		_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
		_, _ = fmt.Fprintf(conn, "%.400s", err)
	}
}

// containerOf returns the container of the process that has connected.
func (d *drains) containerOf(conn *net.UnixConn) (cgroup.Container, error) {
	peer, err := process.Peer(conn)
	if err != nil {
		return cgroup.Container{}, err
	}
	defer peer.Close()
	c, err := d.ContainerOf(peer.PID)
	if err == nil && !peer.Alive() {
		err = errors.New("the process has ended")
	}
	return c, err
}

// drain makes the MPS daemons of a container's pod end the CUDA work of the container's processes.
func (d *drains) drain(ctx context.Context, c cgroup.Container) error {
	if !d.begin(c, time.Now()) {
		return errDrainedBefore
	}
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	var err error
	ended := map[string]bool{}
	for _, g := range d.grants.ofPod(types.UID(c.PodUID)) {
		slice := g.VGPUs[0].Slice
		if ended[slice] || !d.slices.hasDaemon(slice) {
			continue
		}
		ended[slice] = true
		err = errors.Join(err, d.slices.terminateClients(ctx, slice, func(pid int) bool {
			of, err := d.ContainerOf(pid)
			return err == nil && of == c
		}))
	}
	d.metrics.countDrain(beforeStop, err)
	if err != nil {
		d.Log.Warn("failed to end the CUDA work of a container before it is stopped", "pod", c.PodUID, "container", c.ID, "error", err)
	} else {
		d.Log.Info("ended the CUDA work of a container before it is stopped", "pod", c.PodUID, "container", c.ID)
	}
	return err
}

// begin reports whether a container may be drained now, and if so, notes the time.
func (d *drains) begin(c cgroup.Container, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for of, at := range d.last {
		if now.Sub(at) >= drainMemory {
			delete(d.last, of)
		}
	}
	if at, before := d.last[c]; before && now.Sub(at) < drainInterval {
		return false
	}
	d.last[c] = now
	return true
}

// drained reports whether a container has been drained.
func (d *drains) drained(c cgroup.Container) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, before := d.last[c]
	return before
}
