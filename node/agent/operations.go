package agent

import (
	"context"
	"errors"
	"sync"
	"time"
)

// operationLocks serializes the operations on one container, such as granting and releasing its share. A lock is held during disk I/O, but
// blocks only operations on the same container: reading grants needs none of these locks.
type operationLocks struct {
	mu   sync.Mutex // guards the following
	held map[string]*containerLock
}

// containerLock is the lock of one container.
type containerLock struct {
	held  chan struct{} // full while the lock is held
	users int           // number of operations that hold the lock or wait for it
	since time.Time     // when the holder took it
}

// lock blocks until no other operation on the container runs, and returns the function that unlocks it.
func (l *operationLocks) lock(container string) (unlock func()) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*containerLock{}
	}
	op := l.held[container]
	if op == nil {
		op = &containerLock{held: make(chan struct{}, 1)}
		l.held[container] = op
	}
	op.users++
	l.mu.Unlock()
	op.held <- struct{}{}
	l.mu.Lock()
	defer l.mu.Unlock()
	op.since = time.Now()
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		op.since = time.Time{}
		<-op.held
		if op.users--; op.users == 0 {
			delete(l.held, container)
		}
	}
}

// overdue returns the ID of a container on which one operation has run for longer than the limit, or an empty string if there is none.
func (l *operationLocks) overdue(limit time.Duration) (container string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, op := range l.held {
		if !op.since.IsZero() && time.Since(op.since) > limit {
			return id
		}
	}
	return ""
}

// signal wakes the loop that receives from the channel, unless a wake-up is already pending. It never blocks.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// broadcast closes the channel, which wakes all its receivers, and replaces it by an open one for the next event.
func broadcast(c *chan struct{}) {
	close(*c)
	*c = make(chan struct{})
}

// sleep blocks for a duration or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// errHung is returned while a call into the GPU driver has not returned within its timeout.
var errHung = errors.New("the driver does not answer")

// asyncCall makes a call into the GPU driver that may hang. A hung call cannot be cancelled, so each call runs in a goroutine of its own,
// and at most one is in flight. An asyncCall must have only one caller at a time.
type asyncCall[T any] struct {
	call     func() (T, error)
	inFlight chan callResult[T] // nil: none
}

type callResult[T any] struct {
	value T
	err   error
}

// Await starts the call unless an earlier one is still in flight, and blocks until it returns. After the timeout it returns errHung; the
// result of the hung call then goes to a later Await.
func (c *asyncCall[T]) Await(ctx context.Context, timeout time.Duration) (none T, err error) {
	if c.inFlight == nil {
		inFlight := make(chan callResult[T], 1)
		c.inFlight = inFlight
		go func() {
			value, err := c.call()
			inFlight <- callResult[T]{value, err}
		}()
	}
	select {
	case r := <-c.inFlight:
		c.inFlight = nil
		return r.value, r.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-time.After(timeout):
		return none, errHung
	}
}
