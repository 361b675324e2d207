package gpu

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// stuck is the wall-clock time without progress after which Run fails.
const stuck = 10 * time.Second

// Run advances the virtual clock to the given time and waits until all threads wait there. If nothing happens any more, it fails
// with a description of the threads that run.
func (s *Simulation) Run(until time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = max(s.until, until)
	s.settle()
	return s.await(func() bool { return s.now >= until && !s.anyoneRuns() })
}

// Await waits, without advancing the clock, until that many processes take part and all their threads wait.
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
		return alive >= processes && !s.anyoneRuns()
	})
}

// await waits until the simulation is ready. It releases the lock between checks.
func (s *Simulation) await(ready func() bool) error {
	watch := time.AfterFunc(time.Second, s.changed.Broadcast)
	defer watch.Stop()
	progress, since := s.progress, time.Now()
	for !ready() {
		switch {
		case s.closed:
			return fmt.Errorf("the simulation was closed at %v", s.now)
		case progress != s.progress:
			progress, since = s.progress, time.Now()
		case time.Since(since) > stuck:
			return fmt.Errorf("stuck at %v: %s", s.now, s.state())
		}
		watch.Reset(time.Second)
		s.changed.Wait()
	}
	return nil
}

// state returns a description of what holds the clock.
func (s *Simulation) state() string {
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

// Ran returns how many kernels a process has run.
func (s *Simulation) Ran(pid int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spans(pid))
}

// spans returns the kernels of a process. The caller holds the lock.
func (s *Simulation) spans(pid int) []Span {
	for _, p := range s.processes {
		if p.pid == pid {
			return p.spans
		}
	}
	return nil
}
