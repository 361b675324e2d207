package standalone

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

var (
	errClosed      = errors.New("the agent is shutting down")
	errMPSNotReady = errors.New("MPS does not serve the device")
	errNotSetUp    = errors.New("the share could not be set up; the agent's log says why")
)

// waiter is a request in the queue, with the process that sent it.
type waiter struct {
	id       string // of the run that it may become
	process  process.Process
	name     string
	request  share.Request
	grant    chan *control.Grant
	mpsError error // why MPS does not serve the device yet, although the share fits
}

// Admit returns the grant of a share for the process, which then belongs to the node, or the reason for refusing it. If no share is
// free and the request asks to wait, Admit calls queued once and blocks until one is free or ctx ends.
func (n *Node) Admit(
	ctx context.Context, p process.Process, r control.RunRequest, queued func(*control.Refusal),
) (*control.Grant, *control.Refusal) {
	request, err := requestOf(r)
	if err != nil {
		return nil, refusalOf(err)
	}
	w := &waiter{id: strings.ToLower(rand.Text()[:8]), process: p, name: r.Name, request: request, grant: make(chan *control.Grant, 1)}
	refusal, later := n.admitOrQueue(w, r.Wait)
	switch {
	case later && r.Wait:
		queued(refusal)
	case later:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, n.timing.mpsTimeout, errMPSNotReady)
		defer cancel()
	case refusal != nil:
		return nil, refusal
	}
	select {
	case grant := <-w.grant:
		if grant == nil {
			return nil, refusalOf(errNotSetUp)
		}
		return grant, nil
	case <-ctx.Done():
	}
	return n.dequeue(w, context.Cause(ctx))
}

// admitOrQueue admits the request now or, if it may fit later, adds it to the queue and reports that.
func (n *Node) admitOrQueue(w *waiter, wait bool) (refusal *control.Refusal, queued bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	refusal, later := n.tryAdmit(w)
	if refusal == nil || !later || !wait && w.mpsError == nil {
		return refusal, false
	}
	n.waiters = append(n.waiters, w)
	n.Log.Info("request queued", "name", w.name, "pid", w.process.PID, "reason", refusal.Reason)
	return refusal, true
}

// dequeue removes a waiter whose caller has given up, and returns its grant if that was made in the meantime.
func (n *Node) dequeue(w *waiter, why error) (*control.Grant, *control.Refusal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiters = slices.DeleteFunc(n.waiters, func(other *waiter) bool { return other == w })
	select {
	case grant := <-w.grant:
		return grant, nil
	default:
	}
	if errors.Is(why, errMPSNotReady) {
		why = w.mpsError // the latest
	}
	return nil, refusalOf(why)
}

// tryAdmit admits a request if it fits now. later reports whether a refused request may fit at another time.
func (n *Node) tryAdmit(w *waiter) (_ *control.Refusal, later bool) {
	if n.closed {
		return refusalOf(errClosed), false
	}
	pod := podOf(w.process.UID, w.request)
	picks, refusal := n.findDevices(n.usage(), pod)
	if refusal != nil {
		if _, never := n.findDevices(n.empty, pod); never != nil {
			return never, false
		}
		return refusal, true
	}
	r := n.runOf(w, picks)
	pipe, err := n.openMPS(r)
	if err != nil {
		w.mpsError = err
		return refusalOf(err), true
	}
	r.pipe = pipe
	if err := n.start(r); err != nil {
		n.Log.Error("failed to start run", "pid", w.process.PID, "error", err)
		return refusalOf(err), false
	}
	w.grant <- n.grantOf(r)
	return nil, false
}

// admitWaiters admits the waiting requests that fit now, in the order of their arrival. A request that does not fit is overtaken by
// others that do.
func (n *Node) admitWaiters() {
	n.waiters = slices.DeleteFunc(n.waiters, func(w *waiter) bool {
		refusal, later := n.tryAdmit(w)
		if refusal != nil && !later {
			close(w.grant)
		}
		return !later
	})
}

// runOf returns the run of a waiter on the picked devices.
func (n *Node) runOf(w *waiter, picks []packing.Pick) *run {
	r := &run{process: w.process, record: record{
		ID: w.id, Name: w.name, UID: w.process.UID, PID: w.process.PID, Started: time.Now(), Class: picks[0].Class,
		Share: savedShare(w.request.Containers[0].Share), Priority: w.request.Priority,
	}}
	for _, pick := range picks {
		r.Devices = append(r.Devices, string(n.empty.Slices[pick.Slice].ID))
	}
	return r
}

// start sets up, saves and serves a new run. After an error nothing of it is left.
func (n *Node) start(r *run) (err error) {
	p := r.process
	defer func() {
		if err != nil {
			n.cleanUp(r)
		}
	}()
	if r.StartTime, err = process.StartTime(p.PID); err != nil {
		return err
	}
	if err := n.setUp(r); err != nil {
		return err
	}
	if !p.Alive() {
		return fmt.Errorf("process %d has ended", p.PID)
	}
	if err := n.save(r); err != nil {
		return err
	}
	if err := n.prepare(r); err != nil {
		return err
	}
	if err := r.container.Listen(); err != nil {
		return err
	}
	n.watch(r)
	return nil
}

// setUp creates the cgroup of a run and determines how its share is enforced.
func (n *Node) setUp(r *run) (err error) {
	if n.Groups != nil {
		if r.Cgroup, err = n.Groups.enter(r.PID, r.ID); err != nil {
			n.Log.Warn("failed to create cgroup, run is identified by user only", "run", r.ID, "error", err)
		}
	}
	r.Enforcement = n.enforcementOf(r)
	return nil
}

// cleanUp closes the sockets of a run and removes its directory and cgroup.
func (n *Node) cleanUp(r *run) {
	if r.container != nil {
		if err := r.container.Close(); err != nil {
			n.Log.Error("failed to close sockets of run", "run", r.ID, "error", err)
		}
	}
	if err := os.RemoveAll(n.dirOf(r.ID)); err != nil {
		n.Log.Error("failed to remove directory of run", "run", r.ID, "error", err)
	}
	if n.Groups != nil && r.Cgroup != "" {
		n.Groups.remove(r.Cgroup)
	}
}
