package agent

import (
	"context"
	"errors"
	"time"
)

// errHung is returned while a call into the GPU driver has not come back within its timeout.
var errHung = errors.New("the driver does not answer")

// asyncCall runs a call into the GPU driver that may hang. A hung call cannot be cancelled, so it runs in a goroutine of its own, and at
// most one is in flight. An asyncCall is for one caller at a time.
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
