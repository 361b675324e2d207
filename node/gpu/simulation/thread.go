package simulation

import (
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/vgpu/device"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// thread is the connection of one thread of a program. Between request and reply the thread waits; otherwise it computes.
type thread struct {
	conn    *net.UnixConn
	process *process
	asked   *request // nil while the thread runs
}

// process is a program that uses the simulated GPUs.
type process struct {
	pid      int
	id       device.Process
	threads  int
	batches  uint64     // number of batches that were queued
	late     []*request // requests whose work arrived before an earlier batch, and that need no answer
	events   map[uint64]*device.Work
	recorded []uint64 // IDs of events in the order in which they were recorded
	queued   int      // unfinished kernels
	spans    []Span

	firstWaves map[*device.Work]*device.Work // the first wave of each unfinished kernel, by its last one
}

// Span holds the times of a kernel's launch, start and end, and its GPU.
type Span struct {
	At, Start, End time.Duration
	Device         int
}

func (s *Simulation) serve(conn *net.UnixConn) {
	t := &thread{conn: conn}
	buffer := make([]byte, requestSize+worksMax*workSize)
	for {
		n, err := conn.Read(buffer)
		if err != nil || n == 0 {
			break
		}
		r, err := decode(buffer[:n])
		if err != nil || (t.process == nil) != (r.op == opHello) {
			break
		}
		s.mu.Lock()
		s.handleRequest(t, &r)
		s.update()
		closed := s.closed // Close does not know a connection whose greeting comes this late
		s.mu.Unlock()
		if closed {
			break
		}
	}
	s.mu.Lock()
	s.forget(t)
	s.update()
	s.mu.Unlock()
	_ = conn.Close()
}

// handleRequest stores the request of a thread. The work in it is submitted once all earlier batches of the process have arrived.
func (s *Simulation) handleRequest(t *thread, r *request) {
	s.progress++
	if r.op == opHello {
		s.addThread(t, r)
	}
	if r.op == opAnnounce {
		s.inFlight++
		if len(r.works) > 0 {
			t.process.late = append(t.process.late, r)
			s.enqueueLate(t.process)
		}
		return
	}
	if r.op == opWake {
		s.wakes++
	}
	t.asked = r
}

// addThread adds a connected thread to its process, which it identifies by the credentials of the socket. The greeting has the SM limit and
// the MPS client priority of a new process.
func (s *Simulation) addThread(t *thread, greeting *request) {
	pid := peer(t.conn)
	for _, p := range s.processes {
		if p.pid == pid && p.threads > 0 {
			t.process = p
		}
	}
	if t.process == nil {
		t.process = s.addProcess(pid, greeting)
	}
	t.process.threads++
	s.threads = append(s.threads, t)
}

// addProcess adds a process that has no connected thread. It may have sent work before, through threads that have ended.
func (s *Simulation) addProcess(pid int, greeting *request) *process {
	s.created++
	p := &process{
		pid: pid, id: s.created, batches: greeting.batch, events: map[uint64]*device.Work{}, firstWaves: map[*device.Work]*device.Work{},
	}
	s.processes[p.id] = p
	for _, d := range s.devices {
		d.Attach(p.id, share.PerMille(greeting.a))
		if greeting.b != 0 {
			d.LowerPriority(p.id)
		}
	}
	return p
}

func (s *Simulation) forget(t *thread) {
	i := slices.Index(s.threads, t)
	if i < 0 {
		return
	}
	s.progress++
	s.threads = slices.Delete(s.threads, i, i+1)
	if t.process.threads--; t.process.threads > 0 {
		return
	}
	for _, d := range s.devices {
		d.Detach(t.process.id)
		if !s.records {
			d.Forget(t.process.id)
		}
	}
	if !s.records {
		delete(s.processes, t.process.id)
	}
}

func peer(conn *net.UnixConn) int {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if credentials, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(credentials.Pid)
		}
	})
	return pid
}
