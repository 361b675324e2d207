package tokenserver

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// Lease is how long a client goes on after the last heartbeat before it paces itself.
const Lease = 3 * time.Second

// Config holds what a server needs. Zero values stand for the defaults.
type Config struct {
	Clock Clock        // RealClock
	Log   *slog.Logger // slog.Default()

	Turn           time.Duration // how long one process of a container runs while another waits; 5 ms
	RunAhead       time.Duration // unfinished work that a process may queue; 1 ms
	Window         time.Duration // told to clients; 100 ms
	MaxConnections int           // of one container; 64
	HelloTimeout   time.Duration // of a connection that has not said who it is; 2 s
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	setDefault(&c.Turn, 5*time.Millisecond)
	setDefault(&c.RunAhead, time.Millisecond)
	setDefault(&c.Window, 100*time.Millisecond)
	setDefault(&c.MaxConnections, 64)
	setDefault(&c.HelloTimeout, 2*time.Second)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Server serves the slices of one node.
type Server struct {
	Config
	generation uint64 // of this run of the server: the time of its start
	counted    counters
	closed     atomic.Bool

	mu         sync.Mutex // guards containers
	containers map[string]*Container
}

// New gives a server without slices.
func New(c Config) *Server {
	s := &Server{Config: c.withDefaults(), containers: map[string]*Container{}}
	s.generation = uint64(s.Clock.Now())
	return s
}

// Close ends all connections and listeners. Clients go on for their lease and may come back to a new server: directories
// and the files in them stay.
func (s *Server) Close() {
	s.closed.Store(true)
	for _, c := range s.list() {
		c.stop(nil)
		c.leave()
	}
}

// newSession numbers a session, unlike those of any earlier server: it had fewer than nanoseconds have passed since.
func (s *Server) newSession(again bool) uint64 { return s.generation + s.counted.opened(again) }

func (s *Server) header(sequence uint64) tokenwire.Header {
	return tokenwire.Header{Sequence: sequence, Generation: s.generation}
}

// list gives the containers by ID.
func (s *Server) list() []*Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Collect(maps.Values(s.containers))
	slices.SortFunc(list, func(a, b *Container) int { return cmp.Compare(a.ID, b.ID) })
	return list
}
