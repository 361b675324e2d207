package standalone

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/node/versioned"
)

// restore serves the runs of an earlier agent again. It removes the directory of a run whose record is broken; the processes of that run
// keep to their policy file until they end. A record of another version or one that cannot be read is an error: the agent cannot know which
// devices that run uses. So is a run that cannot be served though its process lives: it uses its devices.
func (g *granter) restore() error {
	entries, err := os.ReadDir(g.server.runsDir())
	if err != nil {
		return err
	}
	var found []*run
	var unsupported error
	for _, entry := range entries {
		if !entry.IsDir() {
			continue // not the agent's
		}
		r, err := g.server.load(entry.Name())
		if other, ok := errors.AsType[*versioned.UnsupportedError](err); ok && other.Version > 0 {
			unsupported = errors.Join(unsupported, fmt.Errorf("%w; end the run with the agent that wrote %s, or remove that directory",
				err, g.server.dirOf(entry.Name())))
			continue
		}
		if _, unread := errors.AsType[*fs.PathError](err); unread && !errors.Is(err, fs.ErrNotExist) {
			return err
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
		if err := g.restoreRun(r); err != nil {
			return err
		}
	}
	for _, r := range g.runs.snapshot() {
		if err := r.container.Listen(); err != nil {
			return err
		}
	}
	return nil
}

// restoreRun serves a run again after its record was read. If its process has ended, the share is kept for its children until the lease
// expires. An error means that the process lives and cannot be served.
func (g *granter) restoreRun(r *run) error {
	r.process, r.dead = openIfAlive(r.PID, r.StartTime)
	if err := g.server.prepare(r, func() { g.endIfUnused(r) }); err != nil {
		r.process.Close()
		if !r.dead && !errors.Is(err, errDevicesMissing) {
			return fmt.Errorf("run %s of process %d: %w", r.ID, r.PID, err)
		}
		g.Log.Error("failed to restore run", "run", r.ID, "pid", r.PID, "error", err)
		if r.dead { // otherwise an agent that has the devices again restores it
			g.server.cleanUp(r)
		}
		return nil
	}
	g.watch(r)
	if r.dead {
		g.endAfterLease(r)
	}
	return nil
}

// openIfAlive opens the process with a PID and start time. dead reports that this process has ended; its PID may have been reused.
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
