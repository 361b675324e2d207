package gpu

import (
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/lab/device"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// thread is one connection, of one thread of a client. It waits from a request to the answer.
type thread struct {
	conn    *net.UnixConn
	process *process
	asked   *request // nil while the thread runs
}

// process is a client of the simulation.
type process struct {
	pid      int
	id       device.Process
	threads  int
	batches  uint64     // number of batches that were queued
	late     []*request // requests whose work arrived before an earlier batch, and that need no answer
	events   map[uint64]*device.Work
	recorded []uint64 // events in the order of their records
	queued   int      // unfinished kernels
	spans    []Span
}

// Span is the life of one kernel: its launch, start and end.
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
		s.take(t, &r)
		s.settle()
		closed := s.closed // Close does not know a connection that greets this late
		s.mu.Unlock()
		if closed {
			break
		}
	}
	s.mu.Lock()
	s.forget(t)
	s.settle()
	s.mu.Unlock()
	_ = conn.Close()
}

// take accepts a request. Its work is queued once the earlier batches of the process have arrived.
func (s *Simulation) take(t *thread, r *request) {
	s.progress++
	if r.op == opHello {
		s.greet(t, share.PerMille(r.a))
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

// greet assigns a new connection to its process, which the kernel identifies.
func (s *Simulation) greet(t *thread, limit share.PerMille) {
	pid := peer(t.conn)
	i := slices.IndexFunc(s.processes, func(p *process) bool { return p.pid == pid && p.threads > 0 })
	if i < 0 {
		i = len(s.processes)
		p := &process{pid: pid, id: device.Process(i + 1), events: map[uint64]*device.Work{}}
		s.processes = append(s.processes, p)
		for _, d := range s.devices {
			d.Attach(p.id, limit)
		}
	}
	t.process = s.processes[i]
	t.process.threads++
	s.threads = append(s.threads, t)
}

func (s *Simulation) forget(t *thread) {
	i := slices.Index(s.threads, t)
	if i < 0 {
		return
	}
	s.progress++
	s.threads = slices.Delete(s.threads, i, i+1)
	if t.process.threads--; t.process.threads == 0 {
		for _, d := range s.devices {
			d.Detach(t.process.id)
		}
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
