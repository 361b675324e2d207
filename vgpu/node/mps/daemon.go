package mps

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// daemon is that of one slice. Its loop alone uses what is not guarded.
type daemon struct {
	control // namespaces changes with pid
	keeper  *Keeper
	rule    *supervisor.Supervisor
	wake    chan struct{}
	clients map[int]uint64 // at the last answer, with their births: they may outlive the daemon; nil: there was none
	serves  bool           // at the last answer it had the server of the members' namespaces
	moved   bool           // these have changed since the last note
	failed  error          // the last start

	// guarded by the keeper's lock
	served int // clients at the last look
	pid    int // of the daemon that was met; 0: none
	born   uint64
	asked  map[string]asking // members that are about to share, by name
	why    string            // no new process may come; empty where it may
	bare   []int
	rooms  map[string]room // namespaces of members, by name
}

// asking is a member that is about to share.
type asking struct {
	Member
	at time.Time
}

func newDaemon(k *Keeper, slice string) *daemon {
	return &daemon{
		control: control{Daemons: k.Daemons, slice: slice}, keeper: k, rule: supervisor.New(k.Rule), wake: make(chan struct{}, 1),
		asked: map[string]asking{}, why: unmet,
	}
}

// loop looks again and again: soon after it has done something, and when it is woken.
func (d *daemon) loop() {
	for {
		d.meet()
		l, orders := d.judge()
		d.note(l, orders)
		next := d.keeper.Period
		switch {
		case !l.Wanted && len(d.members()) > 0: // who came during the look was told that he may: no daemon ends under him
			next = min(next, afterOrder)
		case orders.Do != supervisor.Nothing:
			if err := d.obey(orders.Do); err != nil && d.keeper.ctx.Err() == nil {
				d.keeper.Log.Error("MPS", "do", string(orders.Do), "slice", d.slice, "err", err)
			}
			next = min(next, afterOrder)
		}
		var again <-chan time.Time // never, while there is nothing to look after
		if l.Wanted || l.Daemon != supervisor.Absent {
			again = time.After(next)
		}
		select {
		case <-d.keeper.ctx.Done():
			return
		case <-d.wake:
		case <-again:
		}
	}
}

// afterOrder is how soon after an order it is looked what it did.
const afterOrder = 20 * time.Millisecond

// members are those who share the slice, or are about to.
func (d *daemon) members() []Member {
	d.keeper.mu.Lock()
	defer d.keeper.mu.Unlock()
	maps.DeleteFunc(d.asked, func(_ string, a asking) bool { return time.Since(a.at) >= awaited })
	all := slices.Clone(d.keeper.held[d.slice])
	for _, a := range d.asked {
		all = slices.DeleteFunc(all, func(m Member) bool { return m.Name == a.Name }) // it asks for what it will have
		all = append(all, a.Member)
	}
	return all
}

func (d *daemon) note(l supervisor.Look, o supervisor.Orders) {
	d.keeper.mu.Lock()
	changed := d.moved || d.why != o.Closed || !slices.Equal(d.bare, o.Bare)
	before := d.why
	d.why, d.bare, d.served, d.moved = o.Closed, o.Bare, l.Clients, false
	d.keeper.mu.Unlock()
	if changed {
		d.keeper.Log.Info("MPS of a slice", "slice", d.slice, "closed", o.Closed, "before", before, "bare", o.Bare)
		d.keeper.Changed()
	}
}

func (d *daemon) obey(a supervisor.Action) error {
	ctx := d.keeper.ctx
	switch a {
	case supervisor.Start:
		d.failed = d.startNext(ctx)
		return d.failed
	case supervisor.Stop:
		return d.quit(ctx)
	case supervisor.Kill:
		return d.kill()
	}
	return d.endClients(ctx, func(int) bool { return true })
}

// startNext starts another daemon. What that is, the next look finds out.
func (d *daemon) startNext(ctx context.Context) (err error) {
	if err := d.kill(); err != nil { // servers of one that was killed would stand beside its own
		return err
	}
	next := d.control
	if next.namespaces, err = d.choose(ctx); err != nil {
		return err
	}
	return next.start(ctx)
}

// endClients ends the CUDA work of those clients that are meant.
func (c control) endClients(ctx context.Context, meant func(pid int) bool) (all error) {
	servers, err := c.servers(ctx)
	if err != nil {
		return err
	}
	for _, s := range servers {
		for _, pid := range s.clients {
			if meant(pid) {
				all = errors.Join(all, c.terminate(ctx, s, pid))
			}
		}
	}
	return all
}
