package standalone

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/core"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/api/versioned"
)

// restorer serves the runs of an earlier agent.
type restorer struct{ *granter }

// restore serves the runs of an earlier agent again. A run that cannot be served keeps its share, and its programs keep to their policy file,
// until that is possible or they have ended; the other runs are served. So does a run whose record is lost. Records of another version are an
// error: the agent that wrote them knows which devices these runs use.
func (g restorer) restore() error {
	ids, err := g.server.ids()
	if err != nil {
		return err
	}
	var found []*run
	var unsupported error
	for _, id := range ids {
		r, err := g.server.load(id)
		if other, ok := errors.AsType[*versioned.UnsupportedError](err); ok && other.Version > 0 {
			unsupported = errors.Join(unsupported, fmt.Errorf("%w; end the run with the agent that wrote %s, or remove that directory and %s",
				err, g.server.dirOf(id), g.server.copyOf(id)))
			continue
		}
		if err != nil {
			g.Log.Error("the record of a run is lost, and its devices are not shared until its processes have ended", "run", id, "error", err)
			r = g.server.reconstruct(id)
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
	for _, r := range found {
		if g.runs.isRunning(r) && r.container != nil {
			g.listen(r)
		}
	}
	g.retryLater()
	return nil
}

// restoreRun reserves the share of a run. If its process has ended, the share is kept for its children until the lease expires.
func (g restorer) restoreRun(r *run) {
	if err := g.prepare(r); errors.Is(err, core.ErrMissing) && !r.dead { // an agent that has the devices again restores it
		r.process.Close()
		return
	}
	if r.container == nil && r.dead && !g.server.isUsed(r) {
		g.server.cleanUp(r)
		return
	}
	g.watch(r)
}

// prepare reserves the share of a run at the token server. After an error the run is not served; if the kernel did not say whether its process
// lives, it is taken for alive.
func (g restorer) prepare(r *run) (err error) {
	if r.lost {
		return nil
	}
	p, dead := r.process, r.dead
	if p == (process.Process{}) && !dead {
		p, dead, err = openIfAlive(r.PID, r.StartTime)
	}
	var container *tokenserver.Container
	if err == nil {
		container, err = g.server.prepare(r, func() { g.endIfUnused(r) })
	}
	if err != nil {
		g.noteUnserved(r, err)
	}
	g.runs.update(func() { r.process, r.dead, r.container = p, dead, container })
	return err
}

// listen opens the socket of a run whose share is reserved.
func (g restorer) listen(r *run) {
	err := r.container.Listen()
	if err == nil {
		g.runs.update(func() { r.unserved = "" })
		return
	}
	r.container.Suspend()
	g.noteUnserved(r, err)
	g.runs.update(func() { r.container = nil })
}

// noteUnserved records why a run is not served, and logs it unless that is known already.
func (g restorer) noteUnserved(r *run, err error) {
	if r.unserved != err.Error() {
		g.Log.Error("a run is not served, which is tried again", "run", r.ID, "pid", r.PID, "error", err)
	}
	g.runs.update(func() { r.unserved = err.Error() })
}

// retryLater starts to call retryUnserved if there are runs that are not served.
func (g restorer) retryLater() {
	if len(g.runs.unserved()) > 0 {
		time.AfterFunc(g.timing.period, g.retryUnserved)
	}
}

// retryUnserved serves the runs that could not be served before, and releases those whose processes have ended.
func (g restorer) retryUnserved() {
	g.operation.Lock()
	defer g.operation.Unlock()
	if g.runs.isClosed() {
		return
	}
	for _, r := range g.runs.unserved() {
		g.release(r)
		if r.lost || !g.runs.isRunning(r) {
			continue
		}
		watched := r.process != (process.Process{})
		if g.prepare(r) == nil {
			g.listen(r)
		}
		if !watched {
			g.awaitEnd(r)
		}
	}
	g.retryLater()
}

// openIfAlive opens the process with a PID and start time. dead reports that this process has ended; its PID may have been reused. An error
// means that the kernel does not say.
func openIfAlive(pid int, start uint64) (p process.Process, dead bool, err error) {
	p, err = process.Open(pid)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // the last two: it is the ID of a thread now
		return process.Process{}, true, nil
	}
	if err != nil {
		return process.Process{}, false, err
	}
	now, err := process.StartTime(pid)
	if !p.Alive() {
		now, err = 0, nil
	}
	if err != nil || now != start {
		p.Close()
		return process.Process{}, err == nil, err
	}
	return p, false, nil
}
