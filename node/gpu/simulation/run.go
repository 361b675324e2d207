package simulation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gshare-dev/gshare/vgpu/device"
)

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
