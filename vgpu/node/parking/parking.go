// Package parking has servers of models give their device memory back while their processes go on, and take it again.
//
// A Method is one interface that servers have for that. Auto finds the one of a server. What a server says is not trusted: how much memory its
// processes hold is for others to measure.
package parking

import (
	"context"
	"errors"
	"fmt"
)

// Method is one way to park a server. What it does may be repeated.
type Method interface {
	// Name is what status and events call it.
	Name() string
	// Probe returns nil if the server can be parked this way, an *UnsupportedError if it cannot, and another error if it does not say.
	Probe(context.Context, Server) error
	// CopiesToHost reports whether the server keeps in the memory of the host what it has on the device.
	CopiesToHost() bool
	// Park has the server give its device memory back. It returns when the server says that it has.
	Park(context.Context, Server) error
	// Wake has the server take its memory again. It returns when the server says that it can answer requests.
	Wake(context.Context, Server) error
}

// UnsupportedError is why a server cannot be parked by a method, however often it is tried.
type UnsupportedError struct{ Method, Why string }

func (e *UnsupportedError) Error() string { return e.Method + ": " + e.Why }

// Auto is the first of some methods that a server supports. Its errors say for each method why not.
type Auto []Method

// Methods are all methods, the quickest ways back first. Restart is the last: it supports no server.
var Methods = Auto{Triton{}, VLLM{}, Checkpoint{}, Restart{}}

// Name implements Method.
func (Auto) Name() string { return "Auto" }

// CopiesToHost implements Method: it is not known of which server.
func (Auto) CopiesToHost() bool { return true }

// Find returns the method of a server. The error is an *UnsupportedError if it has none.
func (a Auto) Find(ctx context.Context, s Server) (Method, error) {
	var why []error
	supported := false // some method may be, if the server would say
	for _, m := range a {
		err := m.Probe(ctx, s)
		if err == nil {
			return m, nil
		}
		if _, unsupported := errors.AsType[*UnsupportedError](err); !unsupported {
			err, supported = fmt.Errorf("%s: %w", m.Name(), err), true
		}
		why = append(why, err)
	}
	all := errors.Join(why...).Error() // a text: one method that is unsupported does not make all so
	if supported {
		return nil, errors.New(all)
	}
	return nil, &UnsupportedError{a.Name(), all}
}

// Probe implements Method.
func (a Auto) Probe(ctx context.Context, s Server) error {
	_, err := a.Find(ctx, s)
	return err
}

// Park implements Method.
func (a Auto) Park(ctx context.Context, s Server) error {
	m, err := a.Find(ctx, s)
	if err == nil {
		if err = m.Park(ctx, s); err != nil {
			err = fmt.Errorf("%s: %w", m.Name(), err)
		}
	}
	return err
}

// Wake implements Method. A server that has no method was never parked.
func (a Auto) Wake(ctx context.Context, s Server) error {
	m, err := a.Find(ctx, s)
	if _, unsupported := errors.AsType[*UnsupportedError](err); unsupported {
		return nil
	}
	if err == nil {
		if err = m.Wake(ctx, s); err != nil {
			err = fmt.Errorf("%s: %w", m.Name(), err)
		}
	}
	return err
}
