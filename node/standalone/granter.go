package standalone

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

var (
	errClosed      = errors.New("the agent is shutting down")
	errMPSNotReady = errors.New("MPS does not serve the device")
	errNotSetUp    = errors.New("the share could not be set up; the agent's log says why")
)

// granter grants shares of devices to runs, and releases them. An operation lock, which is held over I/O, serializes its work; the status of
// the node and the processes of runs do not wait for it.
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

// admit returns the grant of a share for a process, or the reason for refusing it. If a share is granted, the node closes the process handle
// later. If no share is free and the request asks to wait, admit blocks until one is free or ctx ends, and calls queued with each reason for
// waiting.
func (g *granter) admit(
	ctx context.Context, p process.Process, r control.RunRequest, queued func(*control.Refusal),
) (*control.Grant, *control.Refusal) {
	request, err := requestOf(r)
	if err != nil {
		return nil, refusalOf(err)
	}
	w := newWaiter(p, r.Name, request)
	refusal, waits := g.admitOrQueue(w, r.Wait)
	switch {
	case !waits && refusal != nil:
		return nil, refusal
	case waits && !r.Wait:
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, g.timing.mpsTimeout, errMPSNotReady)
		defer cancel()
		queued = func(*control.Refusal) {}
	}
	answer, refusal := w.await(ctx, queued)
	if refusal != nil || answer != nil {
		return answer, refusal
	}
	return g.dequeue(w, context.Cause(ctx))
}

// admitOrQueue grants a request if it fits now. Otherwise it returns why not, and queues the request if it may fit later and its sender
// waits, or if only MPS is not ready yet.
func (g *granter) admitOrQueue(w *waiter, wait bool) (refusal *control.Refusal, queued bool) {
	g.operation.Lock()
	defer g.operation.Unlock()
	refusal, later := g.tryAdmit(w)
	if refusal == nil || !later || !wait && !w.onlyMPS {
		return refusal, false
	}
	if g.waitersOf(w.process.UID) >= maxWaiters {
		return &control.Refusal{Kind: control.Busy, Reason: fmt.Sprintf("user %d already has %d requests that wait, the most that are queued; %s",
			w.process.UID, maxWaiters, refusal.Reason)}, false
	}
	w.setReason(refusal)
	g.waiters = append(g.waiters, w)
	g.Log.Info("request queued", "name", w.name, "pid", w.process.PID, "reason", refusal.Reason)
	return refusal, true
}

// waitersOf returns the number of queued requests of a user.
func (g *granter) waitersOf(uid uint32) (n int) {
	for _, w := range g.waiters {
		if w.process.UID == uid {
			n++
		}
	}
	return n
}

// dequeue removes from the queue a request whose sender has given up. If the request has been granted in the meantime, it returns the grant.
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
		return nil, w.reason
	}
	return nil, refusalOf(why)
}

// tryAdmit grants a request if it fits now. later reports whether a refused request may fit once other runs end or MPS is ready.
func (g *granter) tryAdmit(w *waiter) (_ *control.Refusal, later bool) {
	if g.runs.isClosed() {
		return refusalOf(errClosed), false
	}
	w.onlyMPS = false
	pod := podOf(w.process.UID, w.request)
	picks, refusal := g.devices.findDevices(g.devices.loaded(g.runs.snapshot()), pod)
	if refusal != nil {
		if _, never := g.devices.findDevices(g.devices.empty, pod); never != nil {
			never.Kind = control.Invalid
			return never, false
		}
		return refusal, true
	}
	r := g.runOf(w, picks)
	endpoint, err := g.server.slices.OpenMPS(r.holder())
	if err != nil {
		w.onlyMPS = true
		return refusalOf(err), true
	}
	r.pipe = endpoint.PipeDir
	if err := g.server.start(r, func() { g.endIfUnused(r) }); err != nil {
		g.Log.Error("failed to start run", "pid", w.process.PID, "error", err)
		return refusalOf(err), false
	}
	g.watch(r)
	g.Log.Info("run started", "run", r.ID, "name", r.Name, "pid", w.process.PID)
	w.grant <- g.server.grantOf(r)
	return nil, false
}

// admitWaiters grants the queued requests that fit now, in the order of their arrival. A request that does not fit is overtaken by later
// ones that do. The caller holds the operation lock.
func (g *granter) admitWaiters() {
	g.waiters = slices.DeleteFunc(g.waiters, func(w *waiter) bool {
		refusal, later := g.tryAdmit(w)
		switch {
		case later:
			w.setReason(refusal)
		case refusal != nil:
			close(w.grant)
		}
		return !later
	})
}

// retryWaiters grants the queued requests that fit now. It is called after the state of an MPS daemon has changed.
func (g *granter) retryWaiters() {
	g.operation.Lock()
	defer g.operation.Unlock()
	g.admitWaiters()
}

// runOf returns the run that a granted request becomes, on the devices that the packer picked.
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

// watch adds a run to the node and waits in the background for the end of its process, to release its share. The caller holds the operation
// lock.
func (g *granter) watch(r *run) {
	g.runs.add(r)
	g.server.retainMPS(g.runs.snapshot())
	if !r.lost {
		g.memory.limit(r)
	}
	g.awaitEnd(r)
}

// awaitEnd waits in the background for the end of a run's process, or for the end of the lease within which children of one that has ended may
// reconnect. It does nothing if whether the process lives is not known.
func (g *granter) awaitEnd(r *run) {
	if r.dead {
		g.endAfterLease(r)
		return
	}
	p := r.process // the run gets another handle of the same process if it is served only later
	if p == (process.Process{}) {
		return
	}
	g.watches.Go(func() {
		p.Wait()
		g.processEnded(r)
	})
}

// processEnded releases the share of a run whose process has ended, unless child processes still use it.
func (g *granter) processEnded(r *run) {
	g.operation.Lock()
	defer g.operation.Unlock()
	if g.runs.isClosed() {
		return // the handle was closed; the process has not ended
	}
	g.runs.update(func() { r.dead = true })
	g.release(r)
}

// endIfUnused releases the share of a run if its process has ended and none of its children uses it.
func (g *granter) endIfUnused(r *run) {
	g.operation.Lock()
	defer g.operation.Unlock()
	g.release(r)
}

// release frees the share of a run and grants waiting requests. It does nothing while the process of the run lives or its children use the
// share. The caller holds the operation lock.
func (g *granter) release(r *run) {
	if !g.runs.isRunning(r) || !r.dead || g.server.isUsed(r) {
		return
	}
	g.runs.update(func() { r.ended = true })
	r.process.Close()
	g.server.cleanUp(r)
	g.runs.remove(r)
	g.server.retainMPS(g.runs.snapshot())
	g.Log.Info("run ended", "run", r.ID, "name", r.Name)
	g.admitWaiters()
}

// endAfterLease releases a restored run whose process has ended, unless one of its children reconnects before the lease of its tokens
// expires.
func (g *granter) endAfterLease(r *run) {
	time.AfterFunc(g.timing.lease, func() { g.endIfUnused(r) })
}

// owned returns the run with a name or ID if the user may change it: only root and the user of a run may.
func (g *granter) owned(uid uint32, name string) (*run, error) {
	r, err := g.runs.find(name)
	if err != nil {
		return nil, err
	}
	if uid != 0 && uid != r.UID {
		return nil, &control.Refusal{Kind: control.Forbidden, Reason: r.ID + " is another user's"}
	}
	return r, nil
}

// setLimit changes the SM limit or the quota of a run of the calling user. The change applies from the next tokens on. It returns nil on
// success.
func (g *granter) setLimit(uid uint32, r control.LimitRequest) *control.Refusal {
	g.operation.Lock()
	defer g.operation.Unlock()
	run, err := g.owned(uid, r.Run)
	if err != nil {
		return refusalOf(err)
	}
	switch {
	case run.container == nil:
		return &control.Refusal{Kind: control.Failed, Reason: fmt.Sprintf("%s is not served: %s", run.ID, run.unserved)}
	case (r.SMLimit == nil) == (r.Quota == nil):
		return &control.Refusal{Kind: control.Invalid, Reason: "want one of an SM limit and a quota"}
	case r.SMLimit != nil:
		err = g.resize(run, *r.SMLimit)
	default:
		err = g.narrow(run, *r.Quota)
	}
	if err != nil {
		return refusalOf(err)
	}
	g.Log.Info("limit changed", "run", run.ID, "name", run.Name, "sms", run.SMLimit, "quota", run.Quota)
	return nil
}

// narrow sets the quota of a run, in percent, up to the quota with which the run began. What other runs may have does not change.
func (g *granter) narrow(r *run, percent int64) error {
	own := r.Share.QuotaRequest
	switch {
	case r.Class != share.MPS:
		return share.Invalid(share.FieldQuota, "only the quota of shares of class mps can change while a program runs; this one is %s", r.Class)
	case percent < 1 || percent > 100 || share.PerMille(percent*10) > own:
		return share.Invalid(share.FieldQuota, "%d%% is not between 1%% and the %s that the run began with", percent, own.Percent())
	}
	quota := share.PerMille(percent * 10)
	if err := r.container.Narrow(quota); err != nil {
		return err
	}
	g.runs.update(func() { r.Quota = quota })
	return g.server.save(r)
}

// resize sets the SM limit of a run, in percent. It refuses limits below the run's request or above the limit with which the run began,
// which is the cap under MPS.
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

// recordMemoryLimit saves the device memory limit that the driver has confirmed for a run, and updates the enforcement status.
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

// close refuses the queued requests and all later ones.
func (g *granter) close() {
	g.operation.Lock()
	defer g.operation.Unlock()
	g.runs.close()
	g.admitWaiters()
}
