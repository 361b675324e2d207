// Package swap has the processes of functions take turns on slices of GPUs, as package vgpu/pipeline/residency decides: it is told what waits for
// each function, loads and evicts, and grants leases to those who send the requests.
package swap

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline/residency"
)

// Mover loads and evicts functions. Its methods are called from several goroutines. A call for a function begins when the one before has returned, was
// given up since its context had ended, or was for a process that has ended.
type Mover interface {
	// Load has the process of a function take its memory on a slice. It returns when the process can answer requests.
	Load(ctx context.Context, function, slice string) error
	// Evict has it give the memory back, or ends it. After an error it is called again. Once it has returned nil, nothing of the function takes
	// memory of the slice any more, even if a Load was given up that has not returned.
	Evict(ctx context.Context, function, slice string) error
}

// Config configures a Swap.
type Config struct {
	Node  *residency.Node // new or restored
	Mover Mover
	// Save makes a snapshot of the node durable. Nothing is done that is not saved.
	Save func(snapshot []byte) error
	// Grant gets all leases whenever they have changed, from the goroutine of Run. It must not block.
	Grant func([]residency.Lease)
	// LoadLimit and EvictLimit are the times after which a load has failed and an eviction is tried again; 5 min and 30 s.
	LoadLimit, EvictLimit time.Duration
	Log                   *slog.Logger
}

// period is the longest time between two decisions.
const period = 50 * time.Millisecond

// evictPause is the time between two tries to evict.
const evictPause = time.Second

// Swap runs a node. Its methods may be called concurrently, while Run runs.
type Swap struct {
	Config
	began  time.Time
	events chan func()
	ended  chan struct{} // closed when Run returns

	// Of the goroutine of Run.
	todo   []residency.Step // decided, and perhaps not saved
	leases []residency.Lease
	wants  map[string]residency.Want // what was said last, by function
	moves  map[string]move           // by function
}

// move is the last step of a function, or the end of its process.
type move struct {
	number int                // of all of the function, so that the result of one that is over is known
	stop   context.CancelFunc // of a step
}

// New returns a Swap.
func New(c Config) *Swap {
	if c.LoadLimit == 0 {
		c.LoadLimit = 5 * time.Minute
	}
	if c.EvictLimit == 0 {
		c.EvictLimit = 30 * time.Second
	}
	return &Swap{Config: c, began: time.Now(), events: make(chan func(), 64), ended: make(chan struct{}), moves: map[string]move{}, wants: map[string]residency.Want{}}
}

// Now returns the time on the node's clock, which counts from New.
func (s *Swap) Now() time.Duration { return time.Since(s.began) }

// tell has the goroutine of Run do something before it decides next.
func (s *Swap) tell(do func()) {
	select {
	case s.events <- do:
	case <-s.ended:
	}
}

// Want says how many requests of a function wait, and when the first is due. It replaces what was said before.
func (s *Swap) Want(function string, due time.Time, requests int) {
	s.tell(func() {
		s.wants[function] = residency.Want{Function: function, Deadline: due.Sub(s.began), Requests: requests}
	})
}

// Finish ends a turn. No request of it is left, and none begins.
func (s *Swap) Finish(turn uint64) {
	s.tell(func() {
		s.Node.FinishTurn(s.Now(), turn) // not if its process has ended
	})
}

// Ended says that the process of a function has ended, and holds no memory any more. It is to be called before an Evict returns that has found no
// process, as the function may be loaded again after that.
func (s *Swap) Ended(function string) {
	s.tell(func() {
		s.next(function, func() {})
		s.Node.Ended(s.Now(), function)
	})
}

// next begins a move of a function and returns its number. It stops the one before, which would be for another process from now on.
func (s *Swap) next(function string, stop context.CancelFunc) int {
	last := s.moves[function]
	if last.stop != nil {
		last.stop()
	}
	s.moves[function] = move{last.number + 1, stop}
	return last.number + 1
}

// Run decides and acts until ctx ends. Processes stay as they are then. Call it once.
func (s *Swap) Run(ctx context.Context) {
	defer close(s.ended)
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		s.decide(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case do := <-s.events:
			do()
			for more := true; more; {
				select {
				case do := <-s.events:
					do()
				default:
					more = false
				}
			}
		}
	}
}

// decide dispatches, and then does and grants what is saved.
func (s *Swap) decide(ctx context.Context) {
	for _, function := range slices.Sorted(maps.Keys(s.wants)) { // again, as a turn has taken the want with it that has come to nothing
		if err := s.Node.SetWant(s.Now(), s.wants[function]); err != nil {
			s.Log.Error("cannot count the requests of a function", "function", function, "error", err)
		}
	}
	d := s.Node.Dispatch(s.Now())
	s.todo = append(s.todo, s.Node.Steps()...)
	leases := s.Node.Leases(s.Now())
	changed := !slices.Equal(leases, s.leases)
	if changed || len(d.Starts) > 0 || len(s.todo) > 0 {
		if err := s.Save(s.Node.Snapshot()); err != nil {
			s.Log.Error("cannot record what functions hold of slices, so that none takes turns", "error", err)
			return
		}
	}
	if changed { // first, as some may be of processes that have ended and are loaded again
		s.leases = leases
		s.Grant(slices.Clone(leases))
	}
	for _, step := range s.todo {
		current, stop := context.WithCancel(ctx)
		go s.do(current, step, s.next(step.Function, stop))
	}
	s.todo = nil
}

// do does a step, the move with a number, and reports what has become of it.
func (s *Swap) do(ctx context.Context, step residency.Step, move int) {
	if step.Move == residency.Load {
		err := within(ctx, s.LoadLimit, func(ctx context.Context) error { return s.Mover.Load(ctx, step.Function, step.Slice) })
		s.report(step, move, err)
		return
	}
	for ctx.Err() == nil {
		err := within(ctx, s.EvictLimit, func(ctx context.Context) error { return s.Mover.Evict(ctx, step.Function, step.Slice) })
		if err == nil {
			s.report(step, move, nil)
			return
		}
		s.Log.Warn("cannot evict a function", "function", step.Function, "slice", step.Slice, "error", err)
		select {
		case <-time.After(evictPause):
		case <-ctx.Done():
		}
	}
}

// report notes the end of a step, unless the process that it was for has ended meanwhile.
func (s *Swap) report(step residency.Step, move int, failure error) {
	s.tell(func() {
		if s.moves[step.Function].number != move {
			return
		}
		var err error
		switch {
		case step.Move == residency.Evict:
			err = s.Node.Evicted(s.Now(), step.Function)
		case failure == nil:
			err = s.Node.Loaded(s.Now(), step.Function)
		default:
			s.Log.Warn("cannot load a function", "function", step.Function, "slice", step.Slice, "error", failure)
			_, _, err = s.Node.Failed(s.Now(), step.Function)
		}
		if err != nil {
			s.Log.Error("cannot note what has become of a step", "step", string(step.Move), "function", step.Function, "error", err)
		}
	})
}

// within calls a function that may not return when its context ends, and does not wait for it longer than until then.
func within(ctx context.Context, limit time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done within %v", limit))
	result := make(chan error, 1)
	go func() {
		defer cancel()
		result <- do(ctx)
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-result: // the context ended with the call
		return err
	default:
		return context.Cause(ctx)
	}
}
