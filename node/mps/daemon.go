package mps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/node/enforcement"
	"github.com/gshare-dev/gshare/node/process"
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

// reasonUnidentified is the reason for which a slice is closed while the process of its MPS daemon is unknown.
const reasonUnidentified = "the daemon is not identified yet"

// identifyProcess finds the process and the version of the daemon before it is queried. It clears what is known about a previous daemon
// process, so that Open never applies the state of a daemon that has ended to its successor.
func (d *daemon) identifyProcess() {
	if isAlive(d.pid, d.startTime) {
		return
	}
	pids, _ := d.findProcesses()
	found := d.control
	found.isVersion3 = slices.ContainsFunc(pids, hasVersion3Arguments)
	pid, startTime := found.findIdentity(pids)
	d.manager.mu.Lock()
	defer d.manager.mu.Unlock()
	d.identity, d.isVersion3, d.limitations = identity{pid, startTime}, found.isVersion3, nil
	d.setNamespacesLocked(nil)
	d.closed = cmp.Or(d.closed, reasonUnidentified)
}

// findIdentity returns the PID and start time of the daemon. It returns zeros unless there is exactly one process, for example while a
// daemon is being started. It also records the daemon's version: the daemon may have been started by an agent that does not support
// namespaces and that left the record of an earlier daemon.
func (c control) findIdentity(pids []int) (pid int, startTime uint64) {
	if len(pids) != 1 {
		return 0, 0
	}
	startTime, err := process.StartTime(pids[0])
	if err != nil || c.recordVersion() != nil {
		return 0, 0
	}
	return pids[0], startTime
}

// isAlive reports whether the process with a PID and start time is still running. A zombie is not, although it still has a start time.
func isAlive(pid int, startTime uint64) bool {
	p, err := process.Open(pid)
	if err != nil {
		return false
	}
	defer p.Close()
	now, err := process.StartTime(pid)
	return err == nil && now == startTime && p.Alive()
}

// decide observes the daemon of the slice and returns what the supervisor decides to do about it. If the daemon works, it
// creates the missing MPS namespaces of the shares first; a failure of that closes the slice.
func (d *daemon) decide() (supervisor.Observation, supervisor.Decision) {
	observation, refused := d.observeDaemon()
	decision := d.supervisor.Decide(time.Now(), observation)
	if refused != nil {
		decision.Closed = refused.Error()
	}
	if observation.Wanted && observation.Daemon == supervisor.Absent && observation.Clients == 0 && d.startErr != nil {
		decision.Closed = "failed to start the daemon: " + d.startErr.Error()
	}
	if d.canProvision(observation) {
		decision.Closed = cmp.Or(decision.Closed, d.provision())
	}
	if d.pid == 0 { // the answer may come from any process
		decision.Closed = cmp.Or(decision.Closed, reasonUnidentified)
	}
	return observation, decision
}

// observeDaemon queries the daemon for its servers and clients. It returns an error only if the daemon refuses to report them; the daemon
// then counts as not answering.
func (d *daemon) observeDaemon() (supervisor.Observation, error) {
	observation := supervisor.Observation{Wanted: len(d.allMembers()) > 0, Daemon: supervisor.Answers}
	servers, err := d.listServers(d.manager.ctx)
	if err != nil {
		observation.Clients = d.remainingClients()
		observation.Daemon, err = d.classifyFailure(err)
		return observation, err
	}
	d.recordServers(servers, &observation)
	if err := d.publishPipe(); err != nil {
		observation.Daemon = supervisor.Silent
		return observation, err
	}
	d.inspect()
	return observation, nil
}

// classifyFailure returns the state of a daemon whose query failed, and the query's error if the daemon itself refused it.
func (d *daemon) classifyFailure(queryErr error) (supervisor.Daemon, error) {
	if pids, _ := d.findProcesses(); len(pids) == 0 {
		return supervisor.Absent, nil
	}
	if errors.Is(queryErr, errTimeout) || !d.hasPipe() {
		return supervisor.Silent, nil
	}
	return supervisor.Silent, queryErr
}

// recordServers stores the clients that the daemon reported, and adds their number, faults and non-MPS processes to the observation.
func (d *daemon) recordServers(servers []server, observation *supervisor.Observation) {
	d.clients, d.hasServer = map[int]uint64{}, false
	known := map[int]bool{}
	for _, s := range servers {
		known[s.pid] = true
		d.hasServer = d.hasServer || s.name == serverName
		observation.Fault = observation.Fault || s.fault
		for _, pid := range s.clients {
			known[pid] = true
			if startTime, err := process.StartTime(pid); err == nil {
				d.clients[pid] = startTime
			}
		}
	}
	observation.Clients, observation.NonMPS = len(d.clients), d.unknownProcesses(known)
}

// unknownProcesses returns the PIDs of running processes on the slice that are not among the known ones.
func (d *daemon) unknownProcesses(known map[int]bool) (unknown []int) {
	d.manager.mu.Lock()
	pids := d.manager.processes[d.slice]
	d.manager.mu.Unlock()
	for _, pid := range pids {
		if _, err := process.StartTime(pid); err == nil && !known[pid] {
			unknown = append(unknown, pid)
		}
	}
	return unknown
}

// remainingClients returns the number of running clients of a daemon that does not answer: those that it reported last, or possibleClients
// if it never answered.
func (d *daemon) remainingClients() (n int) {
	if d.clients == nil {
		return d.possibleClients()
	}
	for pid, startTime := range d.clients {
		if isAlive(pid, startTime) {
			n++
		}
	}
	return n
}

// possibleClients returns an upper bound of the clients of a daemon that was started by an earlier manager and never answered this one.
// Without an MPS server it has none. Otherwise any process on the slice may be one, or any share of the slice until the driver has listed
// those processes.
func (d *daemon) possibleClients() int {
	_, servers := d.findProcesses()
	switch {
	case len(servers) == 0:
		return 0
	case !d.manager.hasProcesses():
		return len(d.allMembers())
	}
	known := map[int]bool{}
	for _, pid := range servers {
		known[pid] = true
	}
	return len(d.unknownProcesses(known))
}

// hasProcesses reports whether ObserveProcesses has been called.
func (m *Manager) hasProcesses() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.processes != nil
}

// nextIsVersion3 reports whether the next daemon is started with MPS v3, which has namespaces. It is if the driver supports them and the
// configuration allows them, but not in MIG instances, for which NVIDIA does not promise them. While the slice has shares, the next daemon
// has the same version as the last one, because containers keep the pipe directories that they were given.
func (d *daemon) nextIsVersion3(ctx context.Context) (bool, error) {
	switch {
	case d.hasMembers():
		return d.recordedVersion3(), nil
	case d.NoNamespaces || strings.HasPrefix(d.slice, "MIG-"):
		return false, nil
	}
	return d.supportsNamespaces(ctx)
}

func (d *daemon) hasMembers() bool {
	d.manager.mu.Lock()
	defer d.manager.mu.Unlock()
	return len(d.manager.members[d.slice]) > 0
}

// canProvision reports whether MPS namespaces can be created now: the daemon supports them, is needed and has no fault.
func (d *daemon) canProvision(observation supervisor.Observation) bool {
	return d.isVersion3 && observation.Wanted && observation.Daemon == supervisor.Answers && !observation.Fault
}

// provision creates the MPS server and the namespaces of the shares, and deletes all other namespaces, including those of an earlier agent.
// It returns why the slice has to be closed to all shares, or an empty string. A server that has ended disappears from the daemon's list
// together with its namespaces; clients that connected then would run without MPS.
func (d *daemon) provision() (closed string) {
	ctx := d.manager.ctx
	if !d.hasServer {
		d.setNamespaces(nil)
		if _, err := d.commandV3(ctx, "server", "create", serverName, "--allowed-devices="+d.slice); err != nil {
			return "failed to create the MPS server: " + err.Error()
		}
	}
	existing, err := d.listNamespaces(ctx)
	if err != nil {
		return "failed to list the MPS namespaces: " + err.Error()
	}
	namespaces := d.createNamespaces(ctx, existing)
	d.setNamespaces(namespaces)
	for _, name := range existing {
		if _, wanted := namespaces[name]; !wanted && name != "default" {
			d.deleteNamespace(ctx, name)
		}
	}
	return ""
}

// createNamespaces creates the MPS namespaces of the shares and sets their limits. Each agent sets the limits of an existing namespace
// once, since an earlier agent may have been killed before it set them.
func (d *daemon) createNamespaces(ctx context.Context, existing []string) map[string]namespace {
	namespaces := map[string]namespace{}
	var timeout error // once one command has timed out, the others would too
	for _, m := range d.allMembers() {
		exists := slices.Contains(existing, m.Name)
		if namespaces[m.Name] = (namespace{m, timeout}); timeout != nil || exists && d.namespaces[m.Name] == (namespace{m, nil}) {
			continue
		}
		err := d.createNamespace(ctx, m, exists)
		if namespaces[m.Name] = (namespace{m, err}); errors.Is(err, errTimeout) {
			timeout = err
		}
	}
	return namespaces
}

// createNamespace creates the MPS namespace of a share, unless it exists, and then sets its limits. A container that has kept its pipe
// directory from a previous daemon may connect between these steps and be unlimited. Its work is therefore terminated, by this agent or by
// the next one.
func (d *daemon) createNamespace(ctx context.Context, m Member, exists bool) error {
	if !exists {
		if err := d.markUnlimited(m.Name); err != nil {
			return err
		}
		if _, err := d.commandV3(ctx, "namespace", "create", m.Name, "--server="+serverName); err != nil {
			return err
		}
	}
	if err := d.setLimits(ctx, m); err != nil || !d.isMarkedUnlimited(m.Name) {
		return err
	}
	if err := d.terminateNamespace(ctx, m.Name); err != nil {
		return err
	}
	return d.unmarkUnlimited(m.Name)
}

// deleteNamespace deletes a namespace, unless a share needs it by now. The daemon refuses while the namespace has clients; then the next
// iteration of the loop tries again.
func (d *daemon) deleteNamespace(ctx context.Context, name string) {
	if slices.ContainsFunc(d.allMembers(), func(m Member) bool { return m.Name == name }) {
		return
	}
	if _, err := d.commandV3(ctx, "namespace", "delete", name, "--server="+serverName); err != nil {
		d.manager.Log.Debug("MPS namespace not deleted", "slice", d.slice, "namespace", name, "error", err)
		return
	}
	_ = d.unmarkUnlimited(name) // if the mark stays, that only terminates the clients of the next namespace of this name once
}

func (d *daemon) setNamespaces(namespaces map[string]namespace) {
	d.manager.mu.Lock()
	defer d.manager.mu.Unlock()
	d.setNamespacesLocked(namespaces)
}

// setNamespacesLocked stores the state of the shares' namespaces, and records whether it has changed. The caller holds the manager's lock.
func (d *daemon) setNamespacesLocked(namespaces map[string]namespace) {
	same := maps.EqualFunc(d.namespaces, namespaces, func(a, b namespace) bool {
		return a.Member == b.Member && fmt.Sprint(a.err) == fmt.Sprint(b.err)
	})
	d.namespaces, d.unpublished = namespaces, d.unpublished || !same
}

// markUnlimited records in a file, before a namespace is created, that clients of the namespace may be unlimited. The file is removed once
// its limits are set, so it also survives an agent that is killed in between.
func (c control) markUnlimited(namespace string) error {
	file := c.unlimitedFile(namespace)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o644)
}

// isMarkedUnlimited reports whether clients of a namespace may be unlimited, because its limits may not have been set yet.
func (c control) isMarkedUnlimited(namespace string) bool {
	_, err := os.Stat(c.unlimitedFile(namespace))
	return !errors.Is(err, os.ErrNotExist)
}

func (c control) unmarkUnlimited(namespace string) error {
	return ignoreNotExist(os.Remove(c.unlimitedFile(namespace)))
}

func (c control) unlimitedFile(namespace string) string {
	return filepath.Join(c.logDir(c.slice), "begun", namespace)
}

// pipeName is the name of the pipe through which clients connect to a daemon.
const pipeName = "control"

// publishPipe makes the daemon's pipe available in the directory for its clients, unless its clients use the directories of namespaces. A
// link to this pipe leads to the same daemon, but not to the pipe beside it that accepts commands from root.
func (c control) publishPipe() error {
	if !c.hasPipe() {
		return errors.New("the pipe of the daemon is missing")
	}
	if c.isVersion3 {
		return nil
	}
	pipe, public := filepath.Join(c.PipeDir(c.slice), pipeName), filepath.Join(c.ClientDir(c.slice), pipeName)
	before, err := os.Lstat(pipe)
	if err != nil {
		return err
	}
	if now, err := os.Lstat(public); err == nil && os.SameFile(before, now) {
		return nil
	}
	next := public + ".next"
	if err := errors.Join(os.MkdirAll(c.ClientDir(c.slice), 0o755), ignoreNotExist(os.Remove(next))); err != nil {
		return err
	}
	if err := os.Link(pipe, next); err != nil {
		return fmt.Errorf("link the pipe for clients: %w", err)
	}
	return os.Rename(next, public)
}

// Limitations of MPS daemons, as enforcement statuses show them.
const (
	SingleUser    = enforcement.MPSDaemon + "serves the processes of one user at a time: the driver is older than 555"
	FaultsUnknown = enforcement.MPSDaemon + "does not report faults: the driver is older than 550"
	Commandable   = enforcement.MPSDaemon + "takes commands from its clients: uid 0 of a container can end the work of all"
)

// Limitations returns what the MPS daemon of a slice cannot do, for the enforcement statuses of the slice's shares.
func (m *Manager) Limitations(slice string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.daemons[slice]; d != nil {
		return d.limitations
	}
	return nil
}

// inspect finds the limitations of the daemon, once for each process that runs as this daemon.
func (d *daemon) inspect() {
	if d.pid == 0 || d.limitations != nil {
		return
	}
	found, err := d.control.findLimitations(d.manager.ctx, d.pid)
	if err != nil {
		return // the next observation tries again
	}
	for _, text := range found {
		d.manager.Log.Warn("MPS daemon is limited", "slice", d.slice, "limitation", text)
	}
	d.manager.mu.Lock()
	defer d.manager.mu.Unlock()
	d.limitations, d.unpublished = found, d.unpublished || len(found) > 0
}

// findLimitations returns the limitations of the daemon with a PID. If err is nil, found is not nil.
func (c control) findLimitations(ctx context.Context, pid int) (found []string, err error) {
	found = []string{}
	if os.Geteuid() == 0 && !hasArguments(pid, c.multiUserFlag()) {
		found = append(found, SingleUser)
	}
	if c.isVersion3 {
		return found, nil
	}
	answer, err := c.commandV2(ctx, "get_server_status")
	if strings.HasPrefix(answer, "Unknown command") {
		found = append(found, FaultsUnknown)
	}
	if c.takesClientCommands(ctx) {
		found = append(found, Commandable)
	}
	return found, err
}

// takesClientCommands reports whether the daemon executes commands that arrive through the pipe for clients. It tries several times, since a
// daemon that is serving another session refuses commands, too.
func (c control) takesClientCommands(ctx context.Context) bool {
	for range 3 {
		if _, err := c.tryCommandV2(ctx, c.ClientDir(c.slice), "get_server_list"); err == nil {
			return true
		}
		time.Sleep(busyDelay)
	}
	return false
}
