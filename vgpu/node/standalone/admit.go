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
	errClosed  = errors.New("the agent is shutting down")
	errOpening = errors.New("MPS does not serve the device")
	errLost    = errors.New("the share could not be set up; the agent's log says why")
)

// waiter is a process in the queue.
type waiter struct {
	id      string // of the run that it may become
	process process.Process
	name    string
	request share.Request
	grant   chan *control.Grant
	opening error // there is room, but MPS does not serve the device yet: why
}

// Admit gives the process a share. If none fits and the request waits, queued is told why, once. The process belongs to
// the node if it gets a grant.
func (n *Node) Admit(
	ctx context.Context, p process.Process, r control.RunRequest, queued func(*control.Refusal),
) (*control.Grant, *control.Refusal) {
	request, err := requestOf(r)
	if err != nil {
		return nil, refusalOf(err)
	}
	w := &waiter{id: strings.ToLower(rand.Text()[:8]), process: p, name: r.Name, request: request, grant: make(chan *control.Grant, 1)}
	refusal, later := n.tryOrQueue(w, r.Wait)
	switch {
	case later && r.Wait:
		queued(refusal)
	case later:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, openLimit, errOpening)
		defer cancel()
	case refusal != nil:
		return nil, refusal
	}
	select {
	case grant := <-w.grant:
		if grant == nil {
			return nil, refusalOf(errLost)
		}
		return grant, nil
	case <-ctx.Done():
	}
	return n.leaveQueue(w, context.Cause(ctx))
}

func (n *Node) tryOrQueue(w *waiter, wait bool) (refusal *control.Refusal, queued bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	refusal, later := n.try(w)
	if refusal == nil || !later || !wait && w.opening == nil {
		return refusal, false
	}
	n.waiters = append(n.waiters, w)
	n.Log.Info("a program waits for room", "name", w.name, "pid", w.process.PID, "why", refusal.Reason)
	return refusal, true
}

// leaveQueue is for a caller that is gone. It may have got its share in the last moment.
func (n *Node) leaveQueue(w *waiter, why error) (*control.Grant, *control.Refusal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.waiters = slices.DeleteFunc(n.waiters, func(other *waiter) bool { return other == w })
	select {
	case grant := <-w.grant:
		return grant, nil
	default:
	}
	if errors.Is(why, errOpening) {
		why = w.opening // by now
	}
	return nil, refusalOf(why)
}

// try admits a request if it fits now. later says that it may fit another time.
func (n *Node) try(w *waiter) (_ *control.Refusal, later bool) {
	if n.closed {
		return refusalOf(errClosed), false
	}
	pod := podOf(w.process.UID, w.request)
	picks, refusal := n.place(n.loaded(), pod)
	if refusal != nil {
		if _, never := n.place(n.empty, pod); never != nil {
			return never, false
		}
		return refusal, true
	}
	r := n.runOf(w, picks)
	pipe, err := n.open(r)
	if err != nil {
		w.opening = err
		return refusalOf(err), true
	}
	r.pipe = pipe
	if err := n.begin(r); err != nil {
		n.Log.Error("start a run", "pid", w.process.PID, "err", err)
		return refusalOf(err), false
	}
	w.grant <- n.grantOf(r)
	return nil, false
}

// admitWaiters gives what has become free to those who wait, in the order in which they came; who does not fit yet is
// overtaken by who does.
func (n *Node) admitWaiters() {
	n.waiters = slices.DeleteFunc(n.waiters, func(w *waiter) bool {
		refusal, later := n.try(w)
		if refusal != nil && !later {
			close(w.grant)
		}
		return !later
	})
}

// runOf is what a waiter becomes on the picked devices.
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

// begin starts a run.
func (n *Node) begin(r *run) (err error) {
	p := r.process
	defer func() {
		if err != nil {
			n.discard(r)
		}
	}()
	if r.StartTime, err = process.Born(p.PID); err != nil {
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
	n.keep(r)
	return nil
}

// setUp makes what a run needs outside of the token server: a cgroup, and the MPS daemon of a shared device.
func (n *Node) setUp(r *run) (err error) {
	if n.Groups != nil {
		if r.Group, err = n.Groups.enter(r.PID, r.ID); err != nil {
			n.Log.Warn("no cgroup for a run: its processes are known by their user only", "run", r.ID, "err", err)
		}
	}
	r.Enforcement = n.enforcementOf(r)
	return nil
}

// discard removes what a run has outside of this process.
func (n *Node) discard(r *run) {
	if r.container != nil {
		if err := r.container.Close(); err != nil {
			n.Log.Error("end a run", "run", r.ID, "err", err)
		}
	}
	if err := os.RemoveAll(n.dirOf(r.ID)); err != nil {
		n.Log.Error("remove the directory of a run", "run", r.ID, "err", err)
	}
	if n.Groups != nil && r.Group != "" {
		n.Groups.remove(r.Group)
	}
}
