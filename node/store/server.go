// Package store serves the model store of a slice: it keeps weights in device memory once for all programs of a namespace. vgpu/store makes
// the decisions; this package knows the programs behind the connections, and creates and releases the memory. It maps none of the memory, so
// it needs no context on the device.
//
// A program gets a file descriptor of the memory. What a program has mapped lives until the program unmaps it or ends, even if the store
// ends first.
package store

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/store/cuda"
	"github.com/gshare-dev/gshare/node/unixsocket"
	"github.com/gshare-dev/gshare/vgpu/share"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// Memory allocates the device's memory.
type Memory interface {
	Create(size share.Bytes) (cuda.Handle, error)
	Export(h cuda.Handle) (*os.File, error)
	Release(h cuda.Handle) error
}

// Options configure a Server.
type Options struct {
	Namespace string
	Capacity  share.Bytes // device memory for all weights; if Declared is set, that decides instead
	// Declared returns which weights the store may have, and how much device memory each of them may take. If it is nil, any weights may be
	// stored, within Capacity.
	Declared func() (map[rules.Digest]share.Bytes, error)
	// Held returns how much of that memory copies of an earlier store still use. If it is nil, there are no such copies.
	Held func() (map[rules.Digest]share.Bytes, error)
	// Identify returns the namespace of a process, from information of the kernel and the agent.
	Identify func(p process.Process) (namespace string, err error)
	// WriteLimit is how long a program may take to store weights, as others may be waiting for these. After that, the program loses its
	// connection. 0 means no limit.
	WriteLimit time.Duration
	Memory     Memory
	// Digest computes the digest of memory. Only one call is made at a time. It must return when its context ends.
	Digest func(ctx context.Context, memory *os.File, size, bytes share.Bytes) (rules.Digest, error)
	// DigestLimit is how long Digest may take for each GiB of weights, or part of one. After that, the weights are dropped. 0 means no
	// limit.
	DigestLimit time.Duration
	Log         *slog.Logger
}

// Server serves a store. It has many methods: one for each kind of request, and each of these needs both the rules and the device under one
// lock.
type Server struct {
	Options
	limits
	verifying sync.Mutex // held while a digest is computed; guards resting
	resting   time.Time  // until when none is computed, as the last one was wrong

	mu     sync.Mutex
	store  *rules.Store
	next   rules.Client
	memory map[rules.ID]cuda.Handle
	files  map[rules.ID]*os.File // of the memory; clients get duplicates, by which the store recognizes the memory
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
			s.pauseAccepting(ctx, err)
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

// pauseAccepting logs a failed accept, and blocks for a while or until the context ends.
func (s *Server) pauseAccepting(ctx context.Context, err error) {
	s.log(slog.LevelError, "failed to accept a connection", "error", err)
	select {
	case <-ctx.Done():
	case <-time.After(acceptRetryDelay):
	}
}

func closed(conn *net.UnixConn) error {
	if conn == nil {
		return nil
	}
	return conn.Close()
}

// enter registers a connection, which is then closed when the context ends. It refuses a connection that comes too late for that.
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

// Trim drops weights that have no users and are no longer declared.
func (s *Server) Trim() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.readLimits(); err != nil {
		return err
	}
	s.release(s.store.Trim())
	return nil
}

// readLimits reads which weights the store may have. The caller holds s.mu.
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

// release gives the memory of entries back. The caller holds s.mu.
func (s *Server) release(dropped []rules.Entry) {
	for _, e := range dropped {
		if file := s.files[e.ID]; file != nil {
			file.Close()
			delete(s.files, e.ID)
		}
		h, ok := s.memory[e.ID]
		if !ok {
			continue // memory for it could not be allocated
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

const (
	// maxConnections limits the number of connections at one time. A program needs only one.
	maxConnections = 1024
	// maxRefused limits how many of them may be refused connections that have not sent a request yet.
	maxRefused = 32
	// patience limits how long the store waits for a client to accept a response, and for a refused client to send a request.
	patience = 2 * time.Second
	// acceptRetryDelay is the pause after a failed accept, most likely for lack of file descriptors.
	acceptRetryDelay = 100 * time.Millisecond
	// requestsPerSecond limits the requests that the store answers; further requests wait. A program sends a hundred requests a second while
	// it waits for another program.
	requestsPerSecond = 2000
	// putsPerSecond bounds how often the store looks what is declared, which takes it milliseconds, and creates memory. A program asks once for the
	// weights that it stores; a program that has many can have as many at once.
	putsPerSecond, putsAtOnce = 20, 256
	// wrongPause is how long, as a multiple of the time that the last digest took, the next one waits if that was another than the key said, and
	// longestPause how long at most. To compute one takes time of the device and the CPU that nobody is charged for.
	wrongPause, longestPause = 9, time.Minute
	// logLines is how many lines the log can have at once for what clients do, and then in a minute.
	logLines = 60
)

// limits limits what clients can make the store do.
type limits struct {
	refused  chan struct{} // holds one element for each refused connection that has not sent a request yet
	requests *rate.Limiter
	puts     *rate.Limiter
	lines    *rate.Limiter
}

func newLimits() limits {
	return limits{
		refused:  make(chan struct{}, maxRefused),
		requests: rate.NewLimiter(requestsPerSecond, requestsPerSecond),
		puts:     rate.NewLimiter(putsPerSecond, putsAtOnce),
		lines:    rate.NewLimiter(rate.Every(time.Minute/logLines), logLines),
	}
}

// log writes a line about what a client does, unless there have been too many.
func (s *Server) log(level slog.Level, text string, args ...any) {
	if s.lines.Allow() {
		s.Log.Log(context.Background(), level, text, args...)
	}
}
