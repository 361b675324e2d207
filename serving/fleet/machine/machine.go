// Package machine runs the instances of functions as processes on this machine, each on a share of a GPU that the machine's agent grants.
package machine

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Machine is a fleet.Platform. Each instance is a process group. It ends when its first process ends, and when this process does.
type Machine struct {
	// Unprobed says that programs answer no probes and count as ready as soon as they execute. It must not change once there are instances.
	Unprobed bool

	run    []string
	output func(instance, line string)
	events chan fleet.Event

	mu        sync.Mutex // guards what follows
	processes map[string]*process
	killed    bool
}

// New returns a Machine. run is the command line of gshare run with the flags that do not depend on the instance. output is called with each line
// that an instance writes, possibly from several goroutines at once.
func New(run []string, output func(instance, line string)) *Machine {
	return &Machine{run: run, output: output, events: make(chan fleet.Event), processes: map[string]*process{}}
}

// Events implements fleet.Platform.
func (m *Machine) Events() <-chan fleet.Event { return m.events }

// Create implements fleet.Platform.
func (m *Machine) Create(i fleet.Instance) {
	p := &process{machine: m, Instance: i, deleted: make(chan struct{}), exited: make(chan struct{}), late: make(chan struct{})}
	p.progress.report = func(message string) {
		p.send(fleet.Event{Kind: fleet.Starting, Message: message, Queued: p.progress.waits == ""})
	}
	p.written.line = func(line string) {
		m.output(i.Name, line)
		p.progress.wrote(line)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.processes[i.Name] = p
	go p.live()
}

// Delete implements fleet.Platform.
func (m *Machine) Delete(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.processes[name]; p != nil && !p.isDeleted() {
		close(p.deleted)
	}
}

// Kill ends all instances at once with SIGKILL, including those that are created later.
func (m *Machine) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.killed = true
	for _, p := range m.processes {
		p.signal(syscall.SIGKILL)
	}
}

// freePort returns a port of the loopback interface on which nobody listens, and reserves it for a process. Another program could still take the port
// before the process does, which may first load its model; then the process fails, and is started again with another port.
func (m *Machine) freePort(p *process) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return 0, err
		}
		port := listener.Addr().(*net.TCPAddr).Port
		listener.Close()
		taken := false
		for _, other := range m.processes {
			taken = taken || other.port == port
		}
		if !taken {
			p.port = port
			return port, nil
		}
	}
}

// loopback is the address of all servers. Tests have another one, so that no server of a test beside them takes a port that they have chosen.
var loopback = "127.0.0.1"

// process is one run of an instance.
type process struct {
	fleet.Instance
	machine *Machine
	port    int           // set with the machine's lock held, as is group
	group   int           // ID of the process group, as long as the kernel cannot reuse it; else 0
	deleted chan struct{} // closed by Delete
	exited  chan struct{} // closed when the first process has exited
	late    chan struct{} // closed if the process was not ready in time
	overdue string        // what the process waited for; set before late is closed

	written  lines
	progress progress
}

func (p *process) isDeleted() bool {
	select {
	case <-p.deleted:
		return true
	default:
		return false
	}
}

func (p *process) send(e fleet.Event) {
	e.Instance = p.Name
	p.machine.events <- e
}

// live starts the process, waits for its end, and reports it.
func (p *process) live() {
	failure := p.execute()
	p.machine.mu.Lock()
	delete(p.machine.processes, p.Name)
	p.machine.mu.Unlock()
	if p.isDeleted() {
		p.send(fleet.Event{Kind: fleet.Gone, Message: failure})
		return
	}
	p.send(fleet.Event{Kind: fleet.Failed, Message: failure})
}

// execute runs the process from start to end and returns how it ended.
func (p *process) execute() string {
	port, err := p.machine.freePort(p)
	if err != nil {
		return err.Error()
	}
	runtime.LockOSThread() // the kernel sends Pdeathsig when the thread that started the process ends
	defer runtime.UnlockOSThread()
	cmd := p.command(port)
	p.progress.wait("") // reports that the process waits for its share
	if err := cmd.Start(); err != nil {
		return err.Error()
	}
	p.setGroup(cmd.Process.Pid)
	ctx, cancel := context.WithCancel(context.Background())
	var others sync.WaitGroup
	others.Go(func() { p.start(ctx, cmd.Process.Pid, cmd.Args) })
	others.Go(p.terminate)
	awaitExit(cmd.Process.Pid)
	close(p.exited)
	cancel()
	others.Wait()
	p.setGroup(0) // ends the other processes of the group
	err = cmd.Wait()
	p.written.flush()
	switch {
	case p.overdue != "":
		return p.progress.explainOverdue(p.overdue)
	case err == nil:
		return p.progress.explain("exited with code 0")
	case cmd.ProcessState.Exited():
		return p.progress.explain(fmt.Sprintf("exited with code %d", cmd.ProcessState.ExitCode()))
	}
	return p.progress.explain(err.Error())
}

// setGroup kills the processes of the present group and sets another one.
func (p *process) setGroup(id int) {
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	p.signal(syscall.SIGKILL)
	p.group = id
	if p.machine.killed {
		p.signal(syscall.SIGKILL)
	}
}

// signal sends a signal to the process group, if there is one. The caller holds the machine's lock.
func (p *process) signal(s syscall.Signal) {
	if p.group != 0 {
		_ = syscall.Kill(-p.group, s) // fails if the group has ended
	}
}

// awaitExit blocks until a child process has exited, and leaves it a zombie, so that its ID is not reused.
func awaitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

func (p *process) command(port int) *exec.Cmd {
	c := p.Function.Container()
	percent := func(part share.PerMille) string { return strconv.Itoa(int(part / 10)) }
	gpus := p.Function.GPUs()
	limit := []string{}
	if p.Share.SMLimit > p.Share.SMRequest {
		limit = []string{"--sm-limit", percent(p.Share.SMLimit)}
	}
	arguments := slices.Concat(p.machine.run[1:], limit, []string{
		"--name", path.Base(p.Name), "--class", string(share.SLO), "--wait", "--quota", percent(p.Share.QuotaRequest), "--quota-limit", percent(p.Share.QuotaLimit),
		"--vgpu", fmt.Sprint(gpus), "--sm", percent(p.Share.SMRequest * share.PerMille(gpus)), // in total, as is the memory
		"--mem", fmt.Sprintf("%dMi", int64(p.Share.Memory/share.MiB)*gpus), "--",
	}, c.Command, c.Args)
	cmd := exec.Command(p.machine.run[0], arguments...)
	cmd.Env = os.Environ()
	for _, v := range c.Env {
		cmd.Env = append(cmd.Env, v.Name+"="+v.Value)
	}
	cmd.Env = append(cmd.Env, api.PortVariable+"="+strconv.Itoa(port), api.HostVariable+"="+loopback)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Stdout, cmd.Stderr = &p.written, &p.written
	cmd.WaitDelay = 5 * time.Second // for processes that have left the group and keep the output open
	return cmd
}

// terminate waits for Delete, or until the process is late, and then ends the process group: with SIGTERM and, if the first process does not exit
// within the grace period, SIGKILL.
func (p *process) terminate() {
	select {
	case <-p.deleted:
	case <-p.late:
	case <-p.exited:
		return
	}
	p.lockedSignal(syscall.SIGTERM)
	timer := time.NewTimer(p.Function.Grace())
	defer timer.Stop()
	select {
	case <-timer.C:
		p.lockedSignal(syscall.SIGKILL)
	case <-p.exited:
	}
}

func (p *process) lockedSignal(s syscall.Signal) {
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	p.signal(s)
}
