// Package swap makes the processes of functions take turns on slices of GPUs, as package serving/rules/pipeline/residency decides. It is told how
// many requests wait for each function, loads and evicts functions, and grants leases to those who send the requests.
package swap

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/pipeline/residency"
)

// Mover loads and evicts functions. Its methods are called from several goroutines. A call for a function begins only when the previous call
// for it has returned, or was given up because its context ended, or was for a process that has ended.
type Mover interface {
	// Load makes the process of a function take its memory on a slice. It returns when the process can answer requests.
	Load(ctx context.Context, function, slice string) error
	// Evict makes the process of a function give the memory back, or ends the process. After an error it is called again. Once it has
	// returned nil, the function takes no memory of the slice any more, even if a Load that was given up has not returned yet.
	Evict(ctx context.Context, function, slice string) error
}

// Config configures a Swap.
type Config struct {
	Node  *residency.Node // new or restored
	Mover Mover
	// Save makes a snapshot of the node durable. Nothing is done before it has been saved.
	Save func(snapshot []byte) error
	// Grant receives all leases whenever they have changed. It is called by the goroutine of Run and must not block.
	Grant func([]residency.Lease)
	// LoadLimit is how long a load may take before it has failed; default 5 min. EvictLimit is how long an eviction may take before it is
	// tried again; default 30 s.
	LoadLimit, EvictLimit time.Duration
	Log                   *slog.Logger
}

// period is the longest time between two decisions.
const period = 50 * time.Millisecond

// evictPause is the pause between two attempts to evict.
const evictPause = time.Second

// Swap runs a node. Its methods may be called concurrently while Run runs.
type Swap struct {
	Config
	began  time.Time
	events chan func()
	ended  chan struct{} // closed when Run returns

	// Used only by the goroutine of Run.
	todo   []residency.Step // decided, but perhaps not saved yet
	leases []residency.Lease
	wants  map[string]residency.Want // the latest call of Want, by function
	moves  map[string]move           // by function
}

// move is the latest step of a function, or the end of its process.
type move struct {
	number int                // counts the moves of the function, so that the result of an outdated move is recognized
	stop   context.CancelFunc // stops a step
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

// Now returns the time on the node's clock, which starts at New.
func (s *Swap) Now() time.Duration { return time.Since(s.began) }

// tell makes the goroutine of Run call do before its next decision.
func (s *Swap) tell(do func()) {
	select {
	case s.events <- do:
	case <-s.ended:
	}
}

// Want reports how many requests of a function wait, and when the first is due. It replaces what was reported before.
func (s *Swap) Want(function string, due time.Time, requests int) {
	s.tell(func() {
		s.wants[function] = residency.Want{Function: function, Deadline: due.Sub(s.began), Requests: requests}
	})
}

// Finish ends a turn. None of its requests is in progress any more, and none will begin.
func (s *Swap) Finish(turn uint64) {
	s.tell(func() {
		s.Node.FinishTurn(s.Now(), turn) // fails if the process has ended
	})
}

// Ended reports that the process of a function has ended and holds no memory any more. If an Evict finds no process, Ended must be called
// before that Evict returns, as the function may be loaded again after it.
func (s *Swap) Ended(function string) {
	s.tell(func() {
		s.next(function, func() {})
		s.Node.Ended(s.Now(), function)
	})
}

// next begins a move of a function and returns its number. It stops the previous move, which from now on would apply to another process.
func (s *Swap) next(function string, stop context.CancelFunc) int {
	last := s.moves[function]
	if last.stop != nil {
		last.stop()
	}
	s.moves[function] = move{last.number + 1, stop}
	return last.number + 1
}

// Run makes decisions and executes them until ctx ends. It then leaves the processes as they are. It must be called only once.
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

// decide lets the node dispatch, saves the result, and then executes the saved steps and grants the saved leases.
func (s *Swap) decide(ctx context.Context) {
	for _, function := range slices.Sorted(maps.Keys(s.wants)) { // repeated, as a turn that came to nothing has used up the want
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
	if changed { // first, as old leases may be for processes that have ended and whose functions are loaded again
		s.leases = leases
		s.Grant(slices.Clone(leases))
	}
	for _, step := range s.todo {
		current, stop := context.WithCancel(ctx)
		go s.do(current, step, s.next(step.Function, stop))
	}
	s.todo = nil
}

// do executes a step, which is the move with the given number, and reports the result.
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

// report records the result of a step, unless the process for which it was taken has ended meanwhile.
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

// within calls a function that may not return when its context ends. It waits for the function only until the context ends.
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
	case err := <-result: // the call returned as the context ended
		return err
	default:
		return context.Cause(ctx)
	}
}
