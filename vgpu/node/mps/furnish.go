package mps

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// choose says whether the next daemon has namespaces: where they are to be had, but not inside of MIG instances, for which NVIDIA
// does not promise them, nor where they are not wanted. Containers keep the pipes that they were given, so while somebody holds the slice
// the next is as the last, whatever the program says now.
func (d *daemon) choose(ctx context.Context) (bool, error) {
	switch {
	case d.isHeld():
		return d.spoke(), nil
	case d.Plain || strings.HasPrefix(d.slice, "MIG-"):
		return false, nil
	}
	return d.offersNamespaces(ctx)
}

func (d *daemon) isHeld() bool {
	d.keeper.mu.Lock()
	defer d.keeper.mu.Unlock()
	return len(d.keeper.held[d.slice]) > 0
}

// furnishes says that the daemon is one to be furnished.
func (d *daemon) furnishes(l supervisor.Look) bool {
	return d.namespaces && l.Wanted && l.Daemon == supervisor.Answers && !l.Fault
}

// furnish makes what the members need, and takes away what was for others: also what an earlier agent has left. It gives why no new process
// may come to the slice at all. A server that has ended is gone from the daemon's list with its namespaces, and who came then would run
// without MPS.
func (d *daemon) furnish() (closed string) {
	ctx := d.keeper.ctx
	if !d.serves {
		d.furnished(nil)
		if _, err := d.tell(ctx, "server", "create", serverName, "--allowed-devices="+d.slice); err != nil {
			return "its server cannot be made: " + err.Error()
		}
	}
	there, err := d.spaces(ctx)
	if err != nil {
		return "its namespaces are not known: " + err.Error()
	}
	rooms := d.furnishAll(ctx, there)
	d.furnished(rooms)
	for _, name := range there {
		if _, wanted := rooms[name]; !wanted && name != "default" {
			d.remove(ctx, name)
		}
	}
	return ""
}

// furnishAll makes the namespaces of the members. Limits are set anew once by each agent: one that was ended halfway may have set none.
func (d *daemon) furnishAll(ctx context.Context, there []string) map[string]room {
	rooms := map[string]room{}
	var silent error // one that does not answer is not asked again and again
	for _, m := range d.members() {
		known := slices.Contains(there, m.Name)
		if rooms[m.Name] = (room{m, silent}); silent != nil || known && d.rooms[m.Name] == (room{m, nil}) {
			continue
		}
		err := d.make(ctx, m, known)
		if rooms[m.Name] = (room{m, err}); errors.Is(err, errSilent) {
			silent = err
		}
	}
	return rooms
}

// make makes a namespace in two steps. A container that has its pipes from the daemon before may come between them, to no limits at all:
// its work ends, if not by this agent then by the next.
func (d *daemon) make(ctx context.Context, m Member, known bool) error {
	if !known {
		if err := d.begin(m.Name); err != nil {
			return err
		}
		if _, err := d.tell(ctx, "namespace", "create", m.Name, "--server="+serverName); err != nil {
			return err
		}
	}
	if err := d.limit(ctx, m); err != nil || !d.begun(m.Name) {
		return err
	}
	if err := d.endIn(ctx, m.Name); err != nil {
		return err
	}
	return d.finish(m.Name)
}

// remove takes a namespace away unless somebody has asked for it since. The daemon refuses while it has clients; then it is tried again.
func (d *daemon) remove(ctx context.Context, name string) {
	if slices.ContainsFunc(d.members(), func(m Member) bool { return m.Name == name }) {
		return
	}
	if _, err := d.tell(ctx, "namespace", "delete", name, "--server="+serverName); err != nil {
		d.keeper.Log.Debug("a namespace of MPS stays", "slice", d.slice, "name", name, "err", err)
		return
	}
	_ = d.finish(name) // what is left of it has the next one's work ended, once
}

// furnished tells what has been made.
func (d *daemon) furnished(rooms map[string]room) {
	d.keeper.mu.Lock()
	defer d.keeper.mu.Unlock()
	d.setRooms(rooms)
}

// setRooms is for who holds the keeper's lock.
func (d *daemon) setRooms(rooms map[string]room) {
	same := maps.EqualFunc(d.rooms, rooms, func(a, b room) bool { return a.Member == b.Member && fmt.Sprint(a.err) == fmt.Sprint(b.err) })
	d.rooms, d.moved = rooms, d.moved || !same
}
