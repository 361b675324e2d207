package standalone

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/node/process"
)

// restore takes over the runs of an earlier agent. What cannot be read is not a run: it is removed, and its processes go on
// by their policy file until they end.
func (n *Node) restore() error {
	entries, err := os.ReadDir(n.runsDir())
	if err != nil {
		return err
	}
	var found []*run
	for _, entry := range entries {
		r, err := n.load(entry.Name())
		if err != nil {
			n.Log.Error("take over a run", "run", entry.Name(), "err", err)
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
		n.resume(r)
	}
	for _, r := range n.runs {
		if err := r.container.Listen(); err != nil {
			return err
		}
	}
	return nil
}

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

// resume keeps a run. A process that has ended may have children that are connected and will come back.
func (n *Node) resume(r *run) {
	r.process, r.dead = alive(r.PID, r.StartTime)
	if err := n.prepare(r); err != nil {
		n.Log.Error("take over a run", "run", r.ID, "err", err)
		n.discard(r)
		return
	}
	n.keep(r)
	if r.dead {
		n.settleLater(r)
	}
}

// alive takes hold of a process if it still is the one that was started then.
func alive(pid int, start uint64) (p process.Process, dead bool) {
	p, err := process.Open(pid)
	if err != nil {
		return process.Process{}, true
	}
	if now, err := process.Born(pid); err != nil || now != start || !p.Alive() {
		p.Close()
		return process.Process{}, true
	}
	return p, false
}
