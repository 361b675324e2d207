package mps

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// daemon manages the MPS control daemon of one slice. The fields that are not guarded are used only by the goroutine of its loop.
type daemon struct {
	control    // isVersion3 changes together with pid, and is guarded like it
	manager    *Manager
	supervisor *supervisor.Supervisor
	wake       chan struct{}
	clients    map[int]uint64 // start times by PID, from the latest answer; they may outlive the daemon; nil: it has never answered
	hasServer  bool           // according to the latest answer, the server of the members' namespaces exists
	startErr   error          // error of the last start

	// guarded by the manager's lock
	identity                             // of the daemon's process; zero: not identified
	limitations []string                 // of the identified daemon, from its first answer; nil before that
	pending     map[string]pendingMember // shares that called Open and are not members yet; by name
	closed      string                   // why the slice accepts no new process; empty if it accepts them
	nonMPS      []int                    // processes that run without MPS
	clientCount int                      // from the last observation
	namespaces  map[string]namespace     // by member
	unpublished bool                     // namespaces has changed since the last OnChange
}

// identity identifies a process.
type identity struct {
	pid       int
	startTime uint64
}

// pendingMember is a share that was passed to Open and not yet to SetMembers.
type pendingMember struct {
	Member
	since time.Time
}

func newDaemon(m *Manager, slice string) *daemon {
	return &daemon{
		control: control{Daemons: m.Daemons, slice: slice}, manager: m, supervisor: supervisor.New(m.Supervisor),
		wake: make(chan struct{}, 1), pending: map[string]pendingMember{}, closed: reasonUnidentified,
	}
}

// actionDelay is the time between an action and the observation of its result.
const actionDelay = 20 * time.Millisecond

// loop repeatedly observes the daemon and acts on it, until the manager is closed.
func (d *daemon) loop() {
	for {
		d.identifyProcess()
		observation, decision := d.decide()
		if d.manager.ctx.Err() != nil { // closed: the daemon may seem not to answer only because the query was cancelled
			return
		}
		d.publish(observation, decision)
		next := d.manager.Interval
		switch {
		case !observation.Wanted && len(d.allMembers()) > 0: // Open has accepted a member meanwhile, so its daemon must not be stopped
			next = min(next, actionDelay)
		case decision.Action != supervisor.Nothing:
			if err := d.performAction(decision.Action); err != nil && d.manager.ctx.Err() == nil {
				d.manager.Log.Error("MPS daemon action failed", "action", string(decision.Action), "slice", d.slice, "error", err)
			}
			next = min(next, actionDelay)
		case !observation.Wanted && observation.Daemon == supervisor.Absent:
			d.manager.releaseSharedMemory(d.slice)
		}
		var timer <-chan time.Time // nil while there is nothing to manage
		if observation.Wanted || observation.Daemon != supervisor.Absent {
			timer = time.After(next)
		}
		select {
		case <-d.manager.ctx.Done():
			return
		case <-d.wake:
		case <-timer:
		}
	}
}

// allMembers returns the shares of the slice, including those that so far were only passed to Open. The limits passed to Open replace those
// of a share with the same name.
func (d *daemon) allMembers() []Member {
	d.manager.mu.Lock()
	defer d.manager.mu.Unlock()
	maps.DeleteFunc(d.pending, func(_ string, p pendingMember) bool { return time.Since(p.since) >= pendingTimeout })
	all := slices.Clone(d.manager.members[d.slice])
	for _, p := range d.pending {
		all = slices.DeleteFunc(all, func(m Member) bool { return m.Name == p.Name })
		all = append(all, p.Member)
	}
	return all
}

// publish stores the result of an observation for callers of the manager, and calls OnChange if it differs from the last one.
func (d *daemon) publish(observation supervisor.Observation, decision supervisor.Decision) {
	d.manager.mu.Lock()
	changed := d.unpublished || d.closed != decision.Closed || !slices.Equal(d.nonMPS, decision.NonMPS)
	before := d.closed
	d.closed, d.nonMPS, d.clientCount, d.unpublished = decision.Closed, decision.NonMPS, observation.Clients, false
	d.manager.mu.Unlock()
	if changed {
		d.manager.Log.Info("MPS state changed", "slice", d.slice, "closed", decision.Closed, "before", before, "nonMPS", decision.NonMPS)
		d.manager.OnChange()
	}
}

// performAction executes an action that the supervisor decided on.
func (d *daemon) performAction(a supervisor.Action) error {
	ctx := d.manager.ctx
	switch a {
	case supervisor.Start:
		d.startErr = d.restart(ctx)
		return d.startErr
	case supervisor.Stop:
		return d.quit(ctx)
	case supervisor.Kill:
		return d.killAll()
	}
	return d.terminateClients(ctx, func(int) bool { return true })
}

// restart kills what is left of the last daemon and starts a new one.
func (d *daemon) restart(ctx context.Context) (err error) {
	if err := d.killAll(); err != nil { // old servers must not run beside the new daemon's
		return err
	}
	next := d.control
	if next.isVersion3, err = d.nextIsVersion3(ctx); err != nil {
		return err
	}
	return next.start(ctx)
}

// terminateClients terminates the CUDA work of the clients whose PIDs match.
func (c control) terminateClients(ctx context.Context, match func(pid int) bool) (all error) {
	servers, err := c.listServers(ctx)
	if err != nil {
		return err
	}
	for _, s := range servers {
		for _, pid := range s.clients {
			if match(pid) {
				all = errors.Join(all, c.terminateClient(ctx, s, pid))
			}
		}
	}
	return all
}
