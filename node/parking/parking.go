// Package parking makes model servers give their device memory back while their processes go on, and take it again later.
//
// A Method is one interface through which servers can do that. Auto finds the method for a server. What a server says is not trusted: others
// have to measure how much memory its processes hold.
package parking

import (
	"context"
	"errors"
	"fmt"
)

// Method is one way to park a server. Its operations may be repeated.
type Method interface {
	// Name returns the name of the method in statuses and events.
	Name() string
	// Probe returns nil if the server can be parked this way, an *UnsupportedError if it cannot, and another error if the server does not
	// tell.
	Probe(context.Context, Server) error
	// CopiesToHost reports whether the server keeps what it has on the device in the memory of the host.
	CopiesToHost() bool
	// Park makes the server give its device memory back. It returns when the server says that it has done so.
	Park(context.Context, Server) error
	// Wake makes the server take its memory again. It returns when the server says that it can answer requests.
	Wake(context.Context, Server) error
}

// UnsupportedError tells why a method cannot park a server, however often it is tried.
type UnsupportedError struct{ Method, Why string }

func (e *UnsupportedError) Error() string { return e.Method + ": " + e.Why }

// Auto is the Method that uses the first of several methods that a server supports. Its errors tell for each method why it cannot be used.
type Auto []Method

// Methods are all methods, the one with the fastest Wake first. Restart is the last, and supports no server.
var Methods = Auto{Triton{}, VLLM{}, Checkpoint{}, Restart{}}

// Name implements Method.
func (Auto) Name() string { return "Auto" }

// CopiesToHost implements Method. It returns true, as the server, and so its method, is not known.
func (Auto) CopiesToHost() bool { return true }

// Find returns the method for a server. The error is an *UnsupportedError if no method supports the server.
func (a Auto) Find(ctx context.Context, s Server) (Method, error) {
	var why []error
	supported := false // whether some method may be supported, but the server did not tell
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
	all := errors.Join(why...).Error() // as text: that one method is unsupported does not mean that all are
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

// Wake implements Method. A server that no method supports was never parked, so nothing is done for it.
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
