package mps

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

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
