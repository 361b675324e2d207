// Package store serves the model store of a slice: weights in device memory that the programs of one namespace have once. vgpu/store decides,
// this package knows the programs behind its connections, and creates and releases the memory. It maps none of it, so it needs no context on
// the device.
//
// A program gets the memory's file descriptor. What it maps lives until it unmaps it or ends, also when the store ends before.
package store

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/node/store/cuda"
	"github.com/gshare-dev/gshare/vgpu/node/unixsocket"
	"github.com/gshare-dev/gshare/vgpu/share"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// Memory is the device's.
type Memory interface {
	Create(size share.Bytes) (cuda.Handle, error)
	Export(h cuda.Handle) (*os.File, error)
	Release(h cuda.Handle) error
}

// Options configure a Server.
type Options struct {
	Namespace string
	Capacity  share.Bytes // of device memory, for all weights; where Declared is set, that decides
	// Declared returns which weights the store may have, and how much device memory each of them may take. nil: any, within Capacity.
	Declared func() (map[rules.Digest]share.Bytes, error)
	// Held returns how much of that is in use by copies of an earlier store. nil: nothing.
	Held func() (map[rules.Digest]share.Bytes, error)
	// Identify returns the namespace of a process, from what the kernel and the agent say.
	Identify func(p process.Process) (namespace string, err error)
	// WriteLimit is how long a program may take to store weights, for which others wait. It loses its connection then. 0 is no limit.
	WriteLimit time.Duration
	Memory     Memory
	// Digest computes the digest of memory. It is called once at a time, and returns when its context ends.
	Digest func(ctx context.Context, memory *os.File, size, bytes share.Bytes) (rules.Digest, error)
	// DigestLimit is how long Digest may take for each GiB of weights that has begun. Then they are dropped. 0 is no limit.
	DigestLimit time.Duration
	Log         *slog.Logger
}

// Server serves a store. It has many methods: one for each request, each of which needs both the rules and the device under one lock.
type Server struct {
	Options
	limits
	verifying sync.Mutex // held while a digest is computed

	mu     sync.Mutex
	store  *rules.Store
	next   rules.Client
	memory map[rules.ID]cuda.Handle
	files  map[rules.ID]*os.File // of the memory: what clients get are duplicates, by which the store knows them again
	pids   map[rules.Client]int
	conns  map[*net.UnixConn]bool
}

// New returns a server without weights.
func New(o Options) *Server {
	return &Server{
		Options: o, limits: newLimits(),
		store: rules.New(o.Namespace, o.Capacity), memory: map[rules.ID]cuda.Handle{},
		files: map[rules.ID]*os.File{}, pids: map[rules.Client]int{}, conns: map[*net.UnixConn]bool{},
	}
}

// Serve accepts connections until the context ends or the listener is closed. Then it ends all leases and releases the memory.
func (s *Server) Serve(ctx context.Context, listener *unixsocket.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer s.releaseAll()
	defer running.Wait()
	defer cancel()
	context.AfterFunc(ctx, func() {
		listener.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		for conn := range s.conns {
			conn.Close()
		}
	})
	for {
		conn, err := listener.AcceptUnix()
		switch {
		case ctx.Err() != nil:
			return errors.Join(closed(conn))
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			s.log(slog.LevelError, "failed to accept a connection", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(acceptRetryDelay):
			}
			continue
		}
		if !s.enter(ctx, conn) {
			conn.Close()
			continue
		}
		running.Go(func() {
			defer s.leave(conn)
			s.serve(ctx, conn)
		})
	}
}

func closed(conn *net.UnixConn) error {
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// enter keeps a connection, which is closed when the context ends. It refuses one that would miss that.
func (s *Server) enter(ctx context.Context, conn *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || len(s.conns) >= maxConnections {
		return false
	}
	s.conns[conn] = true
	return true
}

func (s *Server) leave(conn *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, conn)
	conn.Close()
}

// Entries returns what the store has.
func (s *Server) Entries() []rules.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.Entries()
}

// Evict drops weights without users until so much memory is free or none is left, and returns what it has dropped.
func (s *Server) Evict(bytes share.Bytes) []rules.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	dropped := s.store.Evict(bytes)
	s.release(dropped)
	return dropped
}

// Trim drops weights without users that are not declared any more.
func (s *Server) Trim() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readLimits(); err != nil {
		return err
	}
	s.release(s.store.Trim())
	return nil
}

// readLimits reads which weights the store may have; s.mu is locked.
func (s *Server) readLimits() error {
	if s.Declared == nil {
		return nil
	}
	limits, err := s.Declared()
	if err != nil {
		return err
	}
	var held map[rules.Digest]share.Bytes
	if s.Held != nil {
		if held, err = s.Held(); err != nil {
			return err
		}
	}
	s.store.Limit(limits, held)
	return nil
}

// release gives the memory of entries back; s.mu is locked.
func (s *Server) release(dropped []rules.Entry) {
	for _, e := range dropped {
		if file := s.files[e.ID]; file != nil {
			file.Close()
			delete(s.files, e.ID)
		}
		h, ok := s.memory[e.ID]
		if !ok {
			continue // its memory could not be created
		}
		delete(s.memory, e.ID)
		if err := s.Memory.Release(h); err != nil {
			s.log(slog.LevelError, "failed to release memory", "weights", e.Key.String(), "bytes", e.Size, "error", err)
		}
		s.log(slog.LevelInfo, "dropped weights", "weights", e.Key.String(), "bytes", e.Size, "state", e.State.String())
	}
}

func (s *Server) releaseAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(s.store.Entries())
}
