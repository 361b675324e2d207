package standalone

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/node/versioned"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

var (
	errClosed      = errors.New("the agent is shutting down")
	errMPSNotReady = errors.New("MPS does not serve the device")
	errNotSetUp    = errors.New("the share could not be set up; the agent's log says why")
)

// granter grants shares to runs and releases them, one at a time: each holds the operation lock, which is held over I/O and blocks
// neither the status of the node nor the processes of runs.
type granter struct {
	*Options
	devices     *deviceSet
	runs        *runStore
	server      *runServer
	memory      *memoryLimiter
	enforcement *enforcementReporter
	operation   sync.Mutex // guards waiters
	waiters     []*waiter  // in the order of arrival
	watches     sync.WaitGroup
}

// waiter is a request in the queue, with the process that sent it.
type waiter struct {
	id       string // of the run that it may become
	process  process.Process
	name     string
	request  share.Request
	grant    chan *control.Grant
	mpsError error // why MPS does not serve the device yet, although the share fits
}

// admit returns the grant of a share for the process, which then belongs to the node, or the reason for refusing it. If no share is
// free and the request asks to wait, admit calls queued once and blocks until one is free or ctx ends.
func (g *granter) admit(
	ctx context.Context, p process.Process, r control.RunRequest, queued func(*control.Refusal),
) (*control.Grant, *control.Refusal) {
	request, err := requestOf(r)
	if err != nil {
		return nil, refusalOf(err)
	}
	w := &waiter{id: strings.ToLower(rand.Text()[:8]), process: p, name: r.Name, request: request, grant: make(chan *control.Grant, 1)}
	refusal, later := g.admitOrQueue(w, r.Wait)
	switch {
	case later && r.Wait:
		queued(refusal)
	case later:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, g.timing.mpsTimeout, errMPSNotReady)
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
	return g.dequeue(w, context.Cause(ctx))
}

// admitOrQueue admits the request now or, if it may fit later, adds it to the queue and reports that.
func (g *granter) admitOrQueue(w *waiter, wait bool) (refusal *control.Refusal, queued bool) {
	g.operation.Lock()
	defer g.operation.Unlock()
	refusal, later := g.tryAdmit(w)
	if refusal == nil || !later || !wait && w.mpsError == nil {
		return refusal, false
	}
	g.waiters = append(g.waiters, w)
	g.Log.Info("request queued", "name", w.name, "pid", w.process.PID, "reason", refusal.Reason)
	return refusal, true
}

// dequeue removes a waiter whose caller has given up, and returns its grant if that was made in the meantime.
func (g *granter) dequeue(w *waiter, why error) (*control.Grant, *control.Refusal) {
	g.operation.Lock()
	defer g.operation.Unlock()
	g.waiters = slices.DeleteFunc(g.waiters, func(other *waiter) bool { return other == w })
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
func (g *granter) tryAdmit(w *waiter) (_ *control.Refusal, later bool) {
	if g.runs.isClosed() {
		return refusalOf(errClosed), false
	}
	pod := podOf(w.process.UID, w.request)
	picks, refusal := g.devices.find(g.devices.loaded(g.runs.snapshot()), pod)
	if refusal != nil {
		if _, never := g.devices.find(g.devices.empty, pod); never != nil {
			return never, false
		}
		return refusal, true
	}
	r := g.runOf(w, picks)
	pipe, err := g.server.openMPS(r)
	if err != nil {
		w.mpsError = err
		return refusalOf(err), true
	}
	r.pipe = pipe
	if err := g.server.start(r, func() { g.endIfUnused(r) }); err != nil {
		g.Log.Error("failed to start run", "pid", w.process.PID, "error", err)
		return refusalOf(err), false
	}
	g.watch(r)
	w.grant <- g.server.grantOf(r)
	return nil, false
}

// admitWaiters admits the waiting requests that fit now, in the order of their arrival. A request that does not fit is overtaken by
// others that do. The caller holds the operation lock.
func (g *granter) admitWaiters() {
	g.waiters = slices.DeleteFunc(g.waiters, func(w *waiter) bool {
		refusal, later := g.tryAdmit(w)
		if refusal != nil && !later {
			close(w.grant)
		}
		return !later
	})
}

// retryWaiters admits waiting requests after the state of an MPS daemon has changed.
func (g *granter) retryWaiters() {
	g.operation.Lock()
	defer g.operation.Unlock()
	g.admitWaiters()
}

// runOf returns the run of a waiter on the picked devices.
func (g *granter) runOf(w *waiter, picks []packing.Pick) *run {
	r := &run{process: w.process, record: record{
		ID: w.id, Name: w.name, UID: w.process.UID, PID: w.process.PID, Started: time.Now(), Class: picks[0].Class,
		Share: savedShare(w.request.Containers[0].Share), Priority: w.request.Priority,
	}}
	for _, pick := range picks {
		r.Devices = append(r.Devices, string(g.devices.empty.Slices[pick.Slice].ID))
	}
	return r
}

// watch adds a run and releases it when its process has ended. The caller holds the operation lock.
func (g *granter) watch(r *run) {
	g.runs.add(r)
	g.server.syncMPS(g.runs.snapshot())
	g.memory.limit(r)
	if r.dead {
		return
	}
	g.watches.Go(func() {
		r.process.Wait()
		g.processEnded(r)
	})
}

// processEnded records that the process of a run has ended; its children may still hold the share.
func (g *granter) processEnded(r *run) {
	g.operation.Lock()
	defer g.operation.Unlock()
	if g.runs.isClosed() {
		return // the handle was closed, not the process
	}
	g.runs.update(func() { r.dead = true })
	g.release(r)
}

// endIfUnused releases a run whose process has ended and whose last connection was closed.
func (g *granter) endIfUnused(r *run) {
	g.operation.Lock()
	defer g.operation.Unlock()
	g.release(r)
}

// release frees the share of a run, unless its process lives or others are connected. The caller holds the operation lock.
func (g *granter) release(r *run) {
	if !g.runs.isRunning(r) || !r.dead || r.container.Connections() > 0 {
		return
	}
	g.runs.update(func() { r.ended = true })
	r.process.Close()
	g.server.cleanUp(r)
	g.runs.remove(r)
	g.server.syncMPS(g.runs.snapshot())
	g.Log.Info("run ended", "run", r.ID, "name", r.Name)
	g.admitWaiters()
}

// endAfterLease releases a restored run without a process, unless a child of it reconnects within the lease that its tokens have.
func (g *granter) endAfterLease(r *run) {
	time.AfterFunc(g.timing.lease, func() { g.endIfUnused(r) })
}

// setLimit changes the SM limit of an elastic run of the calling user, from the next tokens on. It returns nil on success.
func (g *granter) setLimit(uid uint32, r control.LimitRequest) *control.Refusal {
	g.operation.Lock()
	defer g.operation.Unlock()
	run, err := g.runs.find(r.Run)
	if err != nil {
		return &control.Refusal{Reason: err.Error()}
	}
	if uid != 0 && uid != run.UID {
		return &control.Refusal{Reason: fmt.Sprintf("%s is another user's", run.ID)}
	}
	if err := g.resize(run, r.SMLimit); err != nil {
		return refusalOf(err)
	}
	g.Log.Info("SM limit changed", "run", run.ID, "name", run.Name, "limit", run.SMLimit)
	return nil
}

// resize sets a limit between the request and the MPS cap of the run's processes, which is fixed at their start.
func (g *granter) resize(r *run, percent int64) error {
	s := r.Share
	if percent < 1 || percent > 100 || share.PerMille(percent*10) < s.SMRequest || share.PerMille(percent*10) > s.SMLimit {
		return share.Invalid(share.FieldSMLimit, "%d%% is not between the request of %s and the limit of %s that the run began with",
			percent, s.SMRequest.Percent(), s.SMLimit.Percent())
	}
	limit := share.PerMille(percent * 10)
	if err := r.container.Resize(limit); errors.Is(err, tokenserver.ErrFixed) {
		return share.Invalid(share.FieldSMLimit, "%v; this one is %s", err, r.Class)
	} else if err != nil {
		return err
	}
	g.runs.update(func() { r.SMLimit = limit })
	return g.server.save(r)
}

// recordMemoryLimit saves the limit that the driver has confirmed for a run.
func (g *granter) recordMemoryLimit(r *run, limit share.Bytes) {
	g.operation.Lock()
	defer g.operation.Unlock()
	if !g.runs.isRunning(r) {
		return
	}
	limited := *r
	limited.MemoryLimit = limit
	status := g.enforcement.statusOf(&limited)
	g.runs.update(func() { r.MemoryLimit, r.Enforcement = limit, status })
	if err := g.server.save(r); err != nil {
		g.Log.Error("failed to save run", "run", r.ID, "error", err)
	}
}

// restore serves the runs of an earlier agent. It removes a directory whose record is broken; processes of that run keep to their policy
// file until they end. It returns an error if a record has another version: that run may still use a device.
func (g *granter) restore() error {
	entries, err := os.ReadDir(g.server.runsDir())
	if err != nil {
		return err
	}
	var found []*run
	var unsupported error
	for _, entry := range entries {
		r, err := g.server.load(entry.Name())
		if other, ok := errors.AsType[*versioned.UnsupportedError](err); ok && other.Version > 0 {
			unsupported = errors.Join(unsupported, fmt.Errorf("%w; end the run with the agent that wrote %s, or remove that directory",
				err, g.server.dirOf(entry.Name())))
			continue
		}
		if err != nil {
			g.Log.Error("failed to restore run", "run", entry.Name(), "error", err)
			if err := os.RemoveAll(g.server.dirOf(entry.Name())); err != nil {
				return err
			}
			continue
		}
		found = append(found, r)
	}
	if unsupported != nil {
		return unsupported
	}
	slices.SortFunc(found, func(a, b *run) int { return a.Started.Compare(b.Started) })
	g.operation.Lock()
	defer g.operation.Unlock()
	for _, r := range found {
		g.restoreRun(r)
	}
	for _, r := range g.runs.snapshot() {
		if err := r.container.Listen(); err != nil {
			return err
		}
	}
	return nil
}

// restoreRun serves a recorded run again. If its process has ended, its children may still reconnect.
func (g *granter) restoreRun(r *run) {
	r.process, r.dead = openIfAlive(r.PID, r.StartTime)
	if err := g.server.prepare(r, func() { g.endIfUnused(r) }); err != nil {
		g.Log.Error("failed to restore run", "run", r.ID, "error", err)
		g.server.cleanUp(r)
		return
	}
	g.watch(r)
	if r.dead {
		g.endAfterLease(r)
	}
}

// openIfAlive opens the process with a PID and start time. dead reports that it has ended.
func openIfAlive(pid int, start uint64) (p process.Process, dead bool) {
	p, err := process.Open(pid)
	if err != nil {
		return process.Process{}, true
	}
	if now, err := process.StartTime(pid); err != nil || now != start || !p.Alive() {
		p.Close()
		return process.Process{}, true
	}
	return p, false
}

// close refuses the waiting requests and all later ones.
func (g *granter) close() {
	g.operation.Lock()
	defer g.operation.Unlock()
	g.runs.close()
	g.admitWaiters()
}
