// Package store plays gshare-node store, without device memory, in tests of the code that starts it.
package store

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/store"
	"github.com/gshare-dev/gshare/node/store/cuda"
	"github.com/gshare-dev/gshare/node/unixsocket"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Behaviour is the environment variable that selects how a store misbehaves; the other constants are its values.
const (
	Behaviour = "GSHARE_TEST_STORE"
	Fails     = "fails" // before it takes the lock
	Hangs     = "hangs" // after it has taken the lock
)

// ErrDriver is the error of a store that is told to fail.
var ErrDriver = errors.New("no driver")

// Run serves with the arguments of gshare-node store until the process is killed. It treats every client as a process of the
// namespace.
func Run(arguments []string) error {
	argument := func(name string) string { return arguments[slices.Index(arguments, name)+1] }
	if os.Getenv(Behaviour) == Fails {
		return ErrDriver
	}
	control, namespace := store.Control(argument("--control")), argument("--namespace")
	if err := control.Hold(); err != nil {
		return err
	}
	if os.Getenv(Behaviour) == Hangs {
		select {}
	}
	server := store.New(store.Options{
		Namespace: namespace, Log: slog.New(slog.DiscardHandler), Memory: none{},
		Identify: func(process.Process) (string, error) { return namespace, nil },
		Declared: store.Declared(argument("--grants"), argument("--slice"), namespace),
	})
	listener, err := unixsocket.Listen("unixpacket", argument("--socket"), 0o666, unixsocket.NewLimiter())
	if err != nil {
		return err
	}
	socket, err := control.Listen()
	if err != nil {
		return err
	}
	go server.ServeControl(socket)
	return server.Serve(context.Background(), listener)
}

// none is a device without memory.
type none struct{}

func (none) Create(share.Bytes) (cuda.Handle, error) { return 0, errors.ErrUnsupported }
func (none) Export(cuda.Handle) (*os.File, error)    { return nil, errors.ErrUnsupported }
func (none) Release(cuda.Handle) error               { return errors.ErrUnsupported }
