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
	"sync"
	"time"

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
