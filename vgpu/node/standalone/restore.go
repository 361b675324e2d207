package standalone

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/node/process"
)

// restore takes over the runs of an earlier agent. It removes a directory whose record is refused; processes of that run keep to their
// policy file until they end.
func (n *Node) restore() error {
	entries, err := os.ReadDir(n.runsDir())
	if err != nil {
		return err
	}
	var found []*run
	for _, entry := range entries {
		r, err := n.load(entry.Name())
		if err != nil {
			n.Log.Error("failed to restore run", "run", entry.Name(), "error", err)
			if err := os.RemoveAll(n.dirOf(entry.Name())); err != nil {
				return err
			}
			continue
		}
		found = append(found, r)
	}
	slices.SortFunc(found, func(a, b *run) int { return a.Started.Compare(b.Started) })
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range found {
		n.restoreRun(r)
	}
	for _, r := range n.runs {
		if err := r.container.Listen(); err != nil {
			return err
		}
	}
	return nil
}

// load reads the record of a run.
func (n *Node) load(id string) (*run, error) {
	text, err := os.ReadFile(filepath.Join(n.dirOf(id), recordName))
	if err != nil {
		return nil, err
	}
	r := &run{}
	if r.record, err = decodeRecord(text); err != nil {
		return nil, err
	}
	if r.ID != id {
		return nil, fmt.Errorf("the record is of run %.20q", r.ID)
	}
	return r, nil
}

// restoreRun serves a recorded run again. If its process has ended, its children may still reconnect.
func (n *Node) restoreRun(r *run) {
	r.process, r.dead = openIfAlive(r.PID, r.StartTime)
	if err := n.prepare(r); err != nil {
		n.Log.Error("failed to restore run", "run", r.ID, "error", err)
		n.cleanUp(r)
		return
	}
	n.watch(r)
	if r.dead {
		n.endAfterLease(r)
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
