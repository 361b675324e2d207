// Package simulation simulates the GPUs behind the fake driver of hook/fake, for several client processes at the same time. How long the
// kernels of a process take follows the model of vgpu/device.
//
// It runs on the machine's clock or on a virtual one. On the virtual clock, time advances only while every thread of every client waits in a
// call of the driver or of the hook, and no frame is on its way to a token server on the same clock. So an experiment costs only as much as
// its events, and its result does not depend on the speed of the machine.
package simulation

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/node/unixsocket"
	"github.com/gshare-dev/gshare/vgpu/device"
)

// Config configures a simulation of GPUs.
type Config struct {
	Socket  string      // path that clients get as FAKE_CUDA_SOCKET
	Mode    os.FileMode // of the socket; 0: 0600
	Devices int
	Virtual bool // the clock is the simulation's
	Record  bool // keep what processes have run, even after they end, for Spans, Ran and Usage
}

// Simulation is a set of simulated GPUs, their clock, and the processes that use them. It has many fields and methods because one lock
// guards all of it: any event may advance the clock, the GPUs and the waiting threads together.
type Simulation struct {
	listener *unixsocket.Listener
	virtual  bool
	records  bool
	start    time.Time
	workers  sync.WaitGroup
	kick     chan struct{} // asks advanceLoop to look at the devices again

	mu        sync.Mutex // guards all below
	changed   *sync.Cond
	now       time.Duration
	until     time.Duration // virtual clock: the time at which it stops
	devices   []*device.Device
	totals    []Total // by device
	processes map[device.Process]*process
	created   device.Process // number of processes so far
	threads   []*thread
	timers    []*timer
	inFlight  int // frames that were announced and not yet handled
	firing    int // number of timers whose function is running
	wakes     uint64
	progress  uint64
	closed    bool
}

// New returns a simulation that serves fake drivers on the configured socket until Close.
func New(config Config) (*Simulation, error) {
	listener, err := unixsocket.Listen("unixpacket", config.Socket, cmp.Or(config.Mode, 0o600), unixsocket.NewLimiter())
	if err != nil {
		return nil, fmt.Errorf("listen for fake drivers: %w", err)
	}
	s := &Simulation{
		listener: listener, virtual: config.Virtual, records: config.Record, start: time.Now(), kick: make(chan struct{}, 1),
		processes: map[device.Process]*process{},
	}
	s.changed = sync.NewCond(&s.mu)
	for range max(1, config.Devices) {
		s.devices = append(s.devices, device.New())
	}
	s.totals = make([]Total, len(s.devices))
	s.workers.Go(s.accept)
	s.workers.Go(s.advanceLoop)
	return s, nil
}

// Close closes all connections and waits until their goroutines have ended.
func (s *Simulation) Close() error {
	err := s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for _, t := range s.threads {
		_ = t.conn.Close() // its reader sees it
	}
	s.changed.Broadcast()
	s.mu.Unlock()
	s.poke()
	s.workers.Wait()
	return err
}

func (s *Simulation) accept() {
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		s.workers.Go(func() { s.serve(conn) })
	}
}

// time returns the time since the start of the simulation. The caller holds the lock.
func (s *Simulation) time() time.Duration {
	if !s.virtual {
		s.now = time.Since(s.start)
	}
	return s.now
}

// advanceLoop advances the simulation whenever a request or timer wakes it and, on the real clock, when the next event is due.
func (s *Simulation) advanceLoop() {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return
		}
		wait := time.Hour
		if s.virtual {
			s.advanceClock()
		} else {
			s.advanceDevices()
			if at, ok := s.nextEventTime(); ok {
				wait = max(0, at-s.time())
			}
		}
		s.changed.Broadcast()
		s.mu.Unlock()
		select {
		case <-s.kick:
		case <-time.After(wait):
		}
	}
}

func (s *Simulation) poke() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// stallTimeout is how long, in real time, Run and Await wait without any progress before they fail. Of a pause of the machine at most 2 s count.
const stallTimeout = 30 * time.Second

// Run advances the virtual clock to the given time and waits until all threads wait there. If nothing happens for a while, it returns an
// error that describes what each thread does.
func (s *Simulation) Run(until time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = max(s.until, until)
	s.update()
	return s.await(func() bool { return s.now >= until && !s.isBusy() })
}

// Await waits, without advancing the clock, until the given number of processes use the simulation and all their threads wait.
func (s *Simulation) Await(processes int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.await(func() bool {
		alive := 0
		for _, p := range s.processes {
			if p.threads > 0 {
				alive++
			}
		}
		return alive >= processes && !s.isBusy()
	})
}

// await waits until ready returns true. It returns an error when the simulation is closed or makes no progress. The caller holds the lock.
func (s *Simulation) await(ready func() bool) error {
	watch := time.AfterFunc(time.Second, s.changed.Broadcast)
	defer watch.Stop()
	progress, idle, last := s.progress, time.Duration(0), time.Now()
	for !ready() {
		idle += min(time.Since(last), 2*time.Second)
		last = time.Now()
		switch {
		case s.closed:
			return fmt.Errorf("the simulation was closed at %v", s.now)
		case progress != s.progress:
			progress, idle = s.progress, 0
		case idle > stallTimeout:
			return fmt.Errorf("stuck at %v: %s", s.now, s.describeState())
		}
		watch.Reset(time.Second)
		s.changed.Wait()
	}
	return nil
}

// describeState describes what keeps the virtual clock from advancing.
func (s *Simulation) describeState() string {
	var lines []string
	for _, t := range s.threads {
		what := "runs"
		if t.asked != nil {
			what = t.asked.op.String()
		}
		lines = append(lines, fmt.Sprintf("thread of %d: %s", t.process.pid, what))
	}
	return fmt.Sprintf("%d frames in flight, %d timers firing; %s", s.inFlight, s.firing, strings.Join(lines, ", "))
}

// Spans returns the kernels that a process has run, in the order of their ends.
func (s *Simulation) Spans(pid int) []Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.spans(pid))
}

// Ran returns the number of kernels that a process has run.
func (s *Simulation) Ran(pid int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spans(pid))
}

// Usage returns what a process has used of the first GPU.
func (s *Simulation) Usage(pid int) (use device.Usage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.created { // the newest of that PID
		if p := s.processes[id+1]; p != nil && p.pid == pid {
			use = s.devices[0].Usage(p.id)
		}
	}
	return use
}

// spans returns the kernels that a process has run, in the order of their ends. The caller holds the lock.
func (s *Simulation) spans(pid int) []Span {
	for id := range s.created {
		if p := s.processes[id+1]; p != nil && p.pid == pid {
			return p.spans
		}
	}
	return nil
}

// update advances the simulation after a request and wakes the goroutines that wait for a change. The caller holds the lock.
func (s *Simulation) update() {
	if s.virtual {
		s.advanceClock()
	} else {
		s.advanceDevices()
		s.poke()
	}
	s.changed.Broadcast()
}

// advanceClock advances the virtual clock from event to event, until a thread computes or the time limit of Run is reached.
func (s *Simulation) advanceClock() {
	for {
		s.advanceDevices()
		if s.closed || s.isBusy() {
			return
		}
		at, ok := s.nextEventTime()
		if !ok || at > s.until {
			s.now = max(s.now, s.until)
			return
		}
		s.now = max(s.now, at)
		s.progress++
		s.advanceDevices()
		s.fire()
	}
}

// isBusy reports whether something keeps the virtual clock from advancing: a thread that computes, a frame that the token server has not
// handled, or a running timer function.
func (s *Simulation) isBusy() bool {
	return s.firing > 0 || s.inFlight != 0 || slices.ContainsFunc(s.threads, func(t *thread) bool { return t.asked == nil })
}

// advanceDevices advances the GPUs to the present time and replies to the threads whose wait is over, until nothing changes.
func (s *Simulation) advanceDevices() {
	for again := true; again; {
		again = false
		for i, d := range s.devices {
			for _, w := range d.Advance(s.time()) {
				s.record(i, w)
			}
		}
		for _, t := range s.threads {
			if t.asked != nil && s.serveOne(t) {
				again = true
			}
		}
	}
}

// record records the end of a kernel, if the work is its last wave, or of a copy, which uses no SMs.
func (s *Simulation) record(gpu int, w *device.Work) {
	p := s.processes[w.Stream.Process]
	if p == nil {
		return // the process ended before its kernel
	}
	if first := p.firstWaves[w]; first != nil {
		p.queued--
		if w.Width > 0 {
			s.totals[gpu].Kernels++
			s.totals[gpu].Time += w.End - first.Start
		} else {
			s.totals[gpu].Copies += w.End - first.Start
		}
		if w.Width > 0 && s.records {
			p.spans = append(p.spans, Span{first.At, first.Start, w.End, gpu})
		}
		delete(p.firstWaves, w)
	}
}

// nextEventTime returns the time of the next event that needs no request: a kernel's start or end, the end of a thread's wait, or an
// expiring timer. ok is false if there is none.
func (s *Simulation) nextEventTime() (at time.Duration, ok bool) {
	earliest := func(t time.Duration) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	for _, d := range s.devices {
		if t, some := d.NextEvent(); some {
			earliest(t)
		}
	}
	for _, t := range s.threads {
		r := t.asked
		if r == nil {
			continue
		}
		if r.at > s.now {
			earliest(r.at)
		} else if until := time.Duration(r.a); (r.op == opSleep || r.op == opWaitWord) && until > s.now {
			earliest(until)
		}
	}
	for _, t := range s.timers {
		if t.set {
			earliest(t.at)
		}
	}
	return at, ok
}

// queueMax is the number of unfinished kernels beyond which a process's launches block, as with the full queue of a real driver.
const queueMax = 1024

// serveOne submits the work of a waiting thread to the devices and, if its wait is over, sends the reply. It reports whether anything has
// changed.
func (s *Simulation) serveOne(t *thread) (progress bool) {
	r := t.asked
	s.enqueueLate(t.process)
	progress = len(r.works) > 0
	if !s.enqueue(t.process, r) {
		return false
	}
	if r.op.waits() && (s.time() < r.at || t.process.queued > queueMax) {
		return progress
	}
	answer, ok := s.replyTo(t.process, r)
	if !ok {
		return progress
	}
	answer.now, answer.wakes, answer.virtual = s.time(), s.wakes, s.virtual
	t.asked = nil
	_, _ = t.conn.Write(answer.encode()) // if the peer is gone, the next read fails
	return true
}

// replyTo returns the reply to a thread's request, and whether it can be sent now.
func (s *Simulation) replyTo(p *process, r *request) (answer reply, due bool) {
	switch r.op {
	case opHello:
		return reply{value: uint64(s.start.UnixNano())}, true // by which a client recognizes the simulation
	case opSleep:
		return reply{}, s.time() >= time.Duration(r.a)
	case opWaitWord:
		if s.wakes != r.b {
			return reply{}, true
		}
		return reply{status: statusTimeout}, s.time() >= time.Duration(r.a)
	case opWaitStream:
		return reply{}, s.idle(p, r.a)
	case opWaitDevice:
		return reply{}, int(r.a) >= len(s.devices) || s.devices[r.a].IsIdle(p.id)
	case opQueryStream:
		if s.idle(p, r.a) {
			return reply{}, true
		}
		return reply{status: statusNotReady}, true
	case opWaitEvent, opQueryEvent:
		w := p.events[r.a]
		switch {
		case w == nil:
			return reply{}, true
		case w.Done:
			return reply{value: uint64(w.End)}, true
		}
		return reply{status: statusNotReady}, r.op == opQueryEvent
	}
	return reply{}, true
}

func (s *Simulation) idle(p *process, stream uint64) bool {
	return !slices.ContainsFunc(s.devices, func(d *device.Device) bool { return d.LastWork(device.Stream{Process: p.id, ID: stream}) != nil })
}

// enqueue submits the work in a request to the GPUs. It returns false, and submits nothing, if an earlier batch of the process is missing.
func (s *Simulation) enqueue(p *process, r *request) bool {
	if len(r.works) == 0 {
		return p.batches >= r.batch
	}
	if p.batches+1 != r.batch {
		return false
	}
	p.batches++
	for _, w := range r.works {
		s.submit(p, w)
	}
	r.works = nil
	return true
}

// enqueueLate submits the batches of a process that had to wait for an earlier batch, sent on another connection.
func (s *Simulation) enqueueLate(p *process) {
	p.late = slices.DeleteFunc(p.late, func(r *request) bool { return s.enqueue(p, r) })
}

func (s *Simulation) submit(p *process, w work) {
	if int(w.device) >= len(s.devices) {
		return
	}
	made := &device.Work{Stream: device.Stream{Process: p.id, ID: w.stream}, At: w.at}
	if !s.virtual {
		made.At = s.time()
	}
	switch w.kind {
	case kindKernel:
		p.queued++
		s.submitWaves(p, w, made)
		return
	case kindRecord:
		p.addEvent(w.event, made, s.now)
	case kindAfter:
		made.After = p.events[w.event]
	}
	s.devices[w.device].Submit(made)
}

// wavesMax limits the waves of a kernel, each of which is an event of the simulation.
const wavesMax = 10_000

// submitWaves submits a kernel as its waves: sets of thread blocks that fill the SMs one after another. Between two waves, work of processes
// with a higher priority may run.
func (s *Simulation) submitWaves(p *process, w work, first *device.Work) {
	waves := time.Duration(min(max(1, w.waves), wavesMax))
	first.Duration, first.Width = w.duration/waves, w.width
	last := first
	s.devices[w.device].Submit(first)
	for range waves - 1 {
		last = &device.Work{Stream: first.Stream, At: first.At, Duration: first.Duration, Width: first.Width, Follows: true}
		s.devices[w.device].Submit(last)
	}
	p.firstWaves[last] = first
}

// eventRetention is how long a CUDA event can be queried after it has completed.
const eventRetention = 5 * time.Second

// addEvent stores a CUDA event, and removes those that completed longer than eventRetention ago.
func (p *process) addEvent(id uint64, event *device.Work, now time.Duration) {
	p.events[id] = event
	p.recorded = append(p.recorded, id)
	for old := p.events[p.recorded[0]]; old.Done && old.End < now-eventRetention; old = p.events[p.recorded[0]] {
		delete(p.events, p.recorded[0])
		p.recorded = p.recorded[1:]
	}
}

// Total is what a GPU has run since the simulation began. Kernels and copies whose process ended before them do not count.
type Total struct {
	Kernels int           // completed
	Time    time.Duration // sum of the times from start to end, even of kernels that ran side by side
	Copies  time.Duration // the same for copies between host and device
}

// Totals returns what each GPU has run.
func (s *Simulation) Totals() []Total {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.totals)
}

var (
	kernelsTotal = prometheus.NewDesc("gshare_simulation_kernels_total", "Kernels that a simulated GPU has completed.", []string{"gpu"}, nil)
	kernelTime   = prometheus.NewDesc("gshare_simulation_kernel_seconds_total",
		"Sum of the times of these kernels on the simulation's clock, without their time in queues.", []string{"gpu"}, nil)
)

// Describe sends the descriptions of the metrics.
func (s *Simulation) Describe(to chan<- *prometheus.Desc) { to <- kernelsTotal; to <- kernelTime }

// Collect sends the metrics of all GPUs.
func (s *Simulation) Collect(to chan<- prometheus.Metric) {
	for i, t := range s.Totals() {
		gpu := strconv.Itoa(i)
		to <- prometheus.MustNewConstMetric(kernelsTotal, prometheus.CounterValue, float64(t.Kernels), gpu)
		to <- prometheus.MustNewConstMetric(kernelTime, prometheus.CounterValue, t.Time.Seconds(), gpu)
	}
}
