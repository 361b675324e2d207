package mps

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// judge gives the orders for what it sees.
func (d *daemon) judge() (supervisor.Look, supervisor.Orders) {
	l, refused := d.look()
	o := d.rule.Look(time.Now(), l)
	if refused != nil {
		o.Closed = refused.Error()
	}
	if l.Wanted && l.Daemon == supervisor.Absent && l.Clients == 0 && d.failed != nil {
		o.Closed = "the daemon does not start: " + d.failed.Error()
	}
	if d.furnishes(l) {
		o.Closed = cmp.Or(o.Closed, d.furnish())
	}
	if d.pid == 0 { // whoever has answered, nothing is known of it
		o.Closed = cmp.Or(o.Closed, unmet)
	}
	return l, o
}

// look asks the daemon. An error is what one says that is there, and refuses to tell how it is: no more is known of it than of a silent one.
func (d *daemon) look() (supervisor.Look, error) {
	l := supervisor.Look{Wanted: len(d.members()) > 0, Daemon: supervisor.Answers}
	servers, err := d.servers(d.keeper.ctx)
	if err != nil {
		l.Clients = d.survivors()
		l.Daemon, err = d.without(err)
		return l, err
	}
	d.count(servers, &l)
	return l, nil
}

// without says what a daemon is that has given no answer.
func (d *daemon) without(answer error) (supervisor.Daemon, error) {
	if daemons, _ := d.processes(); len(daemons) == 0 {
		return supervisor.Absent, nil
	}
	_, err := os.Stat(filepath.Join(d.Pipe(d.slice), "control"))
	if errors.Is(answer, errSilent) || errors.Is(err, os.ErrNotExist) { // there is no way to it
		return supervisor.Silent, nil
	}
	return supervisor.Silent, answer // a tenant may have put something else in its pipe's place
}

// count takes over what the daemon has said.
func (d *daemon) count(servers []server, l *supervisor.Look) {
	d.clients, d.serves = map[int]uint64{}, false
	known := map[int]bool{}
	for _, s := range servers {
		known[s.pid] = true
		d.serves = d.serves || s.name == serverName
		l.Fault = l.Fault || s.fault
		for _, pid := range s.clients {
			known[pid] = true
			if born, err := process.Born(pid); err == nil {
				d.clients[pid] = born
			}
		}
	}
	l.Clients, l.Bare = len(d.clients), d.others(known)
}

// others are the processes on the slice that the daemon does not know, as far as they still are there.
func (d *daemon) others(known map[int]bool) (bare []int) {
	d.keeper.mu.Lock()
	defer d.keeper.mu.Unlock()
	for _, pid := range d.keeper.seen[d.slice] {
		if _, err := process.Born(pid); err == nil && !known[pid] {
			bare = append(bare, pid)
		}
	}
	return bare
}
