package agent

import (
	"context"
	"sync"
	"time"
)

// operationLocks serialises the operations on one container, such as its admission and its release. A lock is held over disk I/O,
// but blocks only operations on the same container: what reads the state of grants (metrics, status, placement) never takes one.
type operationLocks struct {
	mu   sync.Mutex // guards the following
	held map[string]*operation
}

// operation is the lock of one container.
type operation struct {
	held  chan struct{} // full while the lock is held
	users int           // that hold the lock or wait for it
	since time.Time     // when the holder took it
}

// lock blocks until no other operation on the container runs, and returns the function that ends the caller's.
func (l *operationLocks) lock(container string) (unlock func()) {
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*operation{}
	}
	op := l.held[container]
	if op == nil {
		op = &operation{held: make(chan struct{}, 1)}
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

// stuck returns a container on which one operation has run for longer than the limit; empty if there is none.
func (l *operationLocks) stuck(limit time.Duration) (container string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, op := range l.held {
		if !op.since.IsZero() && time.Since(op.since) > limit {
			return id
		}
	}
	return ""
}

// signal requests one more pass of a loop. It never blocks.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// broadcast wakes all that wait on a channel by closing it, and replaces it for those that wait next.
func broadcast(c *chan struct{}) {
	close(*c)
	*c = make(chan struct{})
}

// sleep blocks for a time, or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
