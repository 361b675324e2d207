package tokenserver

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/gshare-dev/gshare/node/unixsocket"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
	"github.com/gshare-dev/gshare/vgpu/token/rckm"
)

// Lease is how long a client keeps its last state after the last heartbeat. After that it paces itself by its policy file.
const Lease = 3 * time.Second

// Config configures a token Server. Zero values select the defaults.
type Config struct {
	Clock Clock        // default RealClock
	Log   *slog.Logger // default slog.Default()

	Turn           time.Duration // how long one process of a container runs while another one waits; default 5 ms
	RunAhead       time.Duration // unfinished work that a process may have on the device; default 1 ms
	Window         time.Duration // accounting window, as sent to clients; default 100 ms
	MaxConnections int           // per container, one for each process; default 1024, more than MPS serves
	HelloTimeout   time.Duration // time within which a connection must send its first frame; default 2 s
	Accepts        *rate.Limiter // limits the connections accepted for all containers together; default unixsocket.NewLimiter()
}

func (c Config) withDefaults() Config {
	if c.Clock == nil {
		c.Clock = RealClock{}
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	c.Turn = cmp.Or(c.Turn, 5*time.Millisecond)
	c.RunAhead = cmp.Or(c.RunAhead, time.Millisecond)
	c.Window = cmp.Or(c.Window, 100*time.Millisecond)
	c.MaxConnections = cmp.Or(c.MaxConnections, 1024)
	c.Accepts = cmp.Or(c.Accepts, unixsocket.NewLimiter())
	c.HelloTimeout = cmp.Or(c.HelloTimeout, 2*time.Second)
	return c
}

// Server issues the tokens of all slices of one node.
type Server struct {
	Config
	generation uint64 // start time of this server, which distinguishes it from earlier ones
	counts     atomicCounters
	closed     atomic.Bool
	pages      atomic.Int64 // pairs of pages of processes; at most maxPages

	mu         sync.Mutex // guards containers
	containers map[string]*Container
}

// New returns a token Server without slices.
func New(c Config) *Server {
	s := &Server{Config: c.withDefaults(), containers: map[string]*Container{}}
	s.generation = uint64(s.Clock.Now())
	return s
}

// Close suspends the service of all containers.
func (s *Server) Close() {
	s.closed.Store(true)
	for _, c := range s.sortedContainers() {
		c.Suspend()
	}
}

// maxPages limits the pairs of pages of all processes together. Each pair takes two mappings. The kernel allows the server 65,530 mappings,
// and a Go program that needs one more crashes.
const maxPages = 16384

// takePages reserves n pairs of pages. It returns false if fewer are left.
func (s *Server) takePages(n int) bool {
	if s.pages.Add(int64(n)) <= maxPages {
		return true
	}
	s.returnPages(n)
	return false
}

func (s *Server) returnPages(n int) { s.pages.Add(-int64(n)) }

// newSessionID returns a session ID that no earlier server has used. IDs count up from the server's start time in nanoseconds, and no server
// opens as many sessions as it runs nanoseconds.
func (s *Server) newSessionID(reconnect bool) uint64 {
	if reconnect {
		s.counts.reconnects.Add(1)
	}
	return s.generation + s.counts.sessions.Add(1)
}

func (s *Server) header(sequence uint64) tokenwire.Header {
	return tokenwire.Header{Sequence: sequence, Generation: s.generation}
}

func (s *Server) sortedContainers() []*Container {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := slices.Collect(maps.Values(s.containers))
	slices.SortFunc(list, func(a, b *Container) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// Reason is why the server refused or closed a connection, as counted in metrics.
type Reason int

// The reasons for refusing or closing a connection.
const (
	OtherContainer Reason = iota // the process does not belong to the container
	Malformed                    // a frame cannot be decoded
	Unexpected                   // a frame is not allowed at this point
	TooMany                      // the container has reached its number of connections
	TooFast                      // the connection exceeds its rate of frames
	Silent                       // no HELLO arrived in time
	Closing                      // the container is being taken out of service
	Outdated                     // the hook lacks a capability that its share needs
	Unreceived                   // the process reports that it could not receive its session
	reasonCount                  // the number of reasons
)

// String returns the value of the reason as a metric label.
func (r Reason) String() string {
	return [...]string{"other_container", "malformed", "unexpected", "too_many", "too_fast", "silent", "closing", "outdated", "unreceived"}[r]
}

// atomicCounters holds the server's counters as atomic variables.
type atomicCounters struct {
	sessions, reconnects atomic.Uint64
	refused              [reasonCount]atomic.Uint64
}

// Counters holds the numbers of sessions and refusals since the start of the server.
type Counters struct {
	Sessions   uint64 // opened sessions, including reconnects
	Reconnects uint64 // sessions of processes that had an earlier one
	Refused    map[Reason]uint64
}

// Counters returns a copy of the server's counters. Refused has an entry for every reason.
func (s *Server) Counters() Counters {
	c := Counters{s.counts.sessions.Load(), s.counts.reconnects.Load(), map[Reason]uint64{}}
	for r := range reasonCount {
		c.Refused[r] = s.counts.refused[r].Load()
	}
	return c
}

// The entries of a container's directory.
const (
	SocketName  = "token.sock"
	PolicyName  = "policy"
	sessionsDir = "sessions" // holds an empty file for each session, which a restarted server reads
	// lockName is the name of an empty file. While no server runs, processes use locks on it to keep to the container's limits together. The
	// hook defines the locks (hook/src/peers.h); the number in the name is their version.
	lockName = "processes-1"
)

// allowReading lets one user read a file that belongs to another, by an access control list.
func allowReading(name string, uid uint32) error {
	const version, none, user, namedUser, group, mask, other, read = 2, 1<<32 - 1, 0x01, 0x02, 0x04, 0x10, 0x20, 4 // linux/posix_acl_xattr.h
	list := binary.LittleEndian.AppendUint32(nil, version)
	for _, entry := range []struct {
		tag, permissions uint16
		id               uint32
	}{{user, read, none}, {namedUser, read, uid}, {group, 0, none}, {mask, read, none}, {other, 0, none}} {
		list = binary.LittleEndian.AppendUint16(list, entry.tag)
		list = binary.LittleEndian.AppendUint16(list, entry.permissions)
		list = binary.LittleEndian.AppendUint32(list, entry.id)
	}
	return unix.Setxattr(name, "system.posix_acl_access", list, 0)
}

// countLocks returns how many bytes of a range others have locked for reading, but stops counting above most. The kernel reports any lock of the
// range, not the first one, so each half that is left is asked about again.
func countLocks(fd uintptr, start, length int64, most int) int {
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: start, Len: length}
	if length <= 0 || unix.FcntlFlock(fd, unix.F_OFD_GETLK, &lock) != nil || lock.Type == unix.F_UNLCK {
		return 0
	}
	from, end := max(start, lock.Start), start+length
	if lock.Len > 0 {
		end = min(end, lock.Start+lock.Len)
	}
	count := int(end - from)
	if count <= most {
		count += countLocks(fd, start, from-start, most-count)
	}
	if count <= most {
		count += countLocks(fd, end, start+length-end, most-count)
	}
	return count
}

// policyText returns the content of the policy file: the limits to which the hook keeps while the server is unreachable.
func policyText(vgpus []VGPU, idleOnly bool) string {
	var b strings.Builder
	b.WriteString("version 1\n")
	for _, v := range vgpus {
		fmt.Fprintf(&b, "vgpu %d %s memory %d quota %d sm %d\n", v.Index, v.UUID, v.Memory, v.guaranteedFraction(idleOnly), v.SMRequest)
	}
	return b.String()
}

// PolicyDevices returns the UUID of each vGPU in the policy file of a container's directory. It returns an error unless it understands the whole
// file.
func PolicyDevices(dir string) (uuids []string, err error) {
	text, err := atomicfile.TryRead(filepath.Join(dir, PolicyName))
	if err != nil {
		return nil, err
	}
	lines, ok := strings.CutPrefix(string(text), "version 1\n")
	if !ok || lines == "" {
		return nil, fmt.Errorf("parse policy: %.40q", text)
	}
	for line := range strings.Lines(lines) {
		var v VGPU
		var quota share.PerMille
		n, err := fmt.Sscanf(line, "vgpu %d %s memory %d quota %d sm %d\n", &v.Index, &v.UUID, &v.Memory, &quota, &v.SMRequest)
		if err != nil || n != 5 {
			return nil, fmt.Errorf("parse policy: %.100q", line)
		}
		uuids = append(uuids, v.UUID)
	}
	return uuids, nil
}

// NewSlice adds a slice to the server. tokens holds the policy for shares that are not elastic, and must not be used by the caller
// afterwards.
func (s *Server) NewSlice(tokens *token.Slice) *Slice {
	blocks, err := rckm.New(rckm.Config{})
	if err != nil {
		panic(err) // the default configuration is valid
	}
	slice := &Slice{server: s, time: timePolicy{tokens}, blocks: blockPolicy{blocks}}
	slice.policy = &slice.time
	slice.timer = s.Clock.NewTimer(func() {
		slice.mu.Lock()
		defer slice.mu.Unlock()
		slice.step()
	})
	return slice
}

// Snapshot returns the state of all containers, sorted by ID.
func (s *Server) Snapshot() []Status {
	var all []Status
	for _, c := range s.sortedContainers() {
		all = append(all, c.Status())
	}
	return all
}

// refuse counts a refusal and sends it to the client, if the client still reads.
func (s *Server) refuse(conn *net.UnixConn, reason *refusal) {
	s.counts.refused[reason.reason].Add(1)
	_ = s.send(conn, s.header(1), &tokenwire.Error{Code: uint32(reason.code), Text: reason.text}, nil)
}

// send writes one frame with file descriptors, without blocking. The socket buffer has room for all frames that a connection ever receives,
// so if it is full, the client has stopped reading. A write timeout instead would also disconnect clients on a busy machine.
func (s *Server) send(conn *net.UnixConn, h tokenwire.Header, m tokenwire.Message, fds []int) error {
	frame, err := tokenwire.Encode(h, m)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	once := func(fd uintptr) bool {
		sent = unix.Sendmsg(int(fd), frame, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	}
	if err := raw.Write(once); err != nil {
		return err
	}
	return sent
}

// AddContainer starts to serve a container. It combines Prepare and Listen.
func (s *Server) AddContainer(spec Spec) (*Container, error) {
	c, err := s.Prepare(spec)
	if err != nil {
		return nil, err
	}
	if err := c.Listen(); err != nil {
		c.leave()
		return nil, err
	}
	return c, nil
}

// Prepare adds the container's shares to their slices and writes its policy file, but accepts no connections yet. A restarted server must
// prepare all containers before the first one listens. Otherwise it could grant SMs on which a process of a container that it does not know
// yet is still running.
func (s *Server) Prepare(spec Spec) (*Container, error) {
	c := &Container{
		Spec: spec, server: s, since: s.Clock.Now(), closing: make(chan struct{}),
		connections: map[*net.UnixConn]struct{}{}, limits: containerLimits{newLimiter(logLinesPerSecond), newLimiter(framesPerContainer)},
	}
	if err := c.createDir(); err != nil {
		c.leave()
		return nil, err
	}
	if err := c.join(); err != nil {
		c.leave()
		return nil, err
	}
	return c, nil
}

// allowEvent reports whether a rate limiter allows one more event now, by the server's clock.
func (s *Server) allowEvent(l *rate.Limiter) bool {
	return l.AllowN(time.Unix(0, int64(s.Clock.Now())), 1)
}
