package agent

import (
	"context"
	"errors"
	"time"
)

var errHung = errors.New("the driver does not answer")

// question is a call into the driver with an end to the patience: one that hangs cannot be ended, so it has a goroutine of its own.
// There is one such call at most; its answer is taken whenever it comes. It serves one caller at a time.
type question[T any] struct {
	call  func() (T, error)
	asked chan answered[T] // nil: none is open
}

type answered[T any] struct {
	is  T
	err error
}

// ask gives the answer; the error is errHung where there is none yet, or the context's.
func (q *question[T]) ask(ctx context.Context, patience time.Duration) (none T, err error) {
	if q.asked == nil {
		asked := make(chan answered[T], 1)
		q.asked = asked
		go func() {
			is, err := q.call()
			asked <- answered[T]{is, err}
		}()
	}
	select {
	case a := <-q.asked:
		q.asked = nil
		return a.is, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-time.After(patience):
		return none, errHung
	}
}
