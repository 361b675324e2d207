package mps

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/node/process"
)

const unmet = "the daemon is being looked for"

// meet finds out which process the daemon is and what it speaks, before it is asked. Both stand for that one process alone: whoever wants to come
// may by what is known of it while it lives, and not by what is known of the one before it.
func (d *daemon) meet() {
	if lives(d.pid, d.born) {
		return
	}
	daemons, _ := d.processes()
	met := d.control
	met.namespaces = slices.ContainsFunc(daemons, speaksVersion3)
	pid, born := met.theOne(daemons)
	d.keeper.mu.Lock()
	defer d.keeper.mu.Unlock()
	d.pid, d.born, d.namespaces = pid, born, met.namespaces
	d.setRooms(nil)
	d.why = cmp.Or(d.why, unmet)
}

// theOne is the process of the daemon. Where there are several, as while one is being started, it is not known who will answer. What it
// speaks is remembered: an agent that does not know namespaces may have started it, and have left what was remembered before.
func (c control) theOne(daemons []int) (pid int, born uint64) {
	if len(daemons) != 1 {
		return 0, 0
	}
	born, err := process.Born(daemons[0])
	if err != nil || c.remember() != nil {
		return 0, 0
	}
	return daemons[0], born
}

// lives says that a process has not ended; until its parent asks for it, one that has still has a birth.
func lives(pid int, born uint64) bool {
	p, err := process.Open(pid)
	if err != nil {
		return false
	}
	defer p.Close()
	now, err := process.Born(pid)
	return err == nil && now == born && p.Alive()
}
