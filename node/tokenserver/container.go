package tokenserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/unixsocket"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	acceptRetryDelay  = 100 * time.Millisecond // after a failed accept, most likely for lack of file descriptors
	logLinesPerSecond = 1                      // for each container; its processes can cause connections to be closed as often as they like
)

// Spec describes a container, or a program started by gshare run, that the server serves.
type Spec struct {
	ID    string
	Dir   string // created if it does not exist; an earlier server may have left it
	VGPUs []VGPU
	// IdleOnly means that the container begins with only the time that others leave, see Reshape.
	IdleOnly bool
	// Parked means that the container begins with no more device memory than Kept for each vGPU, see Park.
	Parked bool
	Kept   share.Bytes

	// Owner is the only user, besides root, whose processes share the limits while no server runs; nil: all users.
	Owner *uint32
	// Admit returns an error for a process that does not belong to the container; nil admits every process.
	Admit func(process.Process) error
	// Launcher is the PID of a process that connects on behalf of programs that inherit the connection; 0 if there is none.
	Launcher int
	// Empty is called when the container is no longer in use. It must not block on the container.
	Empty func()
}

// Container is a container that the server serves, with its listener, connections and vGPUs. It has many methods: those that its connections
// use, and those by which its owner changes what the container gets while it runs.
type Container struct {
	Spec
	server   *Server
	listener *unixsocket.Listener
	vgpus    []*vgpu
	locks    *os.File // its lock file
	serving  sync.WaitGroup
	closing  chan struct{} // closed by stop
	looking  sync.Mutex    // see inUse

	mu          sync.Mutex    // guards the following
	since       time.Duration // when it was prepared; after Listen, when it began to listen
	connections map[*net.UnixConn]struct{}
	detached    int // sessions whose connection has ended and whose pages are still in use
	stopped     bool
	refusals    refusals

	limits containerLimits
}

// containerLimits limits the load that the processes of a container cause together.
type containerLimits struct {
	logLines, frames *rate.Limiter
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

// Listen starts to accept connections of a prepared container.
func (c *Container) Listen() (err error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.server.containers[c.ID] != nil {
		return fmt.Errorf("container %s is already served", c.ID)
	}
	// Every user may connect: a program of the container may have changed its user.
	if c.listener, err = unixsocket.Listen("unixpacket", filepath.Join(c.Dir, SocketName), 0o666, c.server.Accepts); err != nil {
		return err
	}
	c.listener.KeepFile() // clients keep trying this socket until the next server replaces it
	c.server.containers[c.ID] = c
	c.mu.Lock()
	c.since = c.server.Clock.Now()
	c.mu.Unlock()
	c.serving.Go(c.accept)
	return nil
}

func (c *Container) join() error {
	if len(c.VGPUs) == 0 || len(c.VGPUs) > tokenwire.MaxVGPUs {
		return fmt.Errorf("container has %d vGPUs, must have 1 to %d", len(c.VGPUs), tokenwire.MaxVGPUs)
	}
	sessions, err := c.listSessions()
	if err != nil {
		return err
	}
	for _, spec := range c.VGPUs {
		v := &vgpu{VGPU: spec, idle: c.IdleOnly, leased: newLeasedSessions(sessions, c.server.Clock.Now()+Lease)}
		if v.page, err = newPage[tokenwire.ContainerPage]("gshare-container", fixedSizeSeals); err != nil {
			return err
		}
		if c.Parked {
			v.hold(c.Kept)
		}
		if err := spec.Slice.join(v); err != nil {
			v.page.close()
			return err
		}
		c.vgpus = append(c.vgpus, v)
	}
	return nil
}

func (c *Container) leave() {
	if c.locks != nil {
		c.locks.Close()
	}
	for _, v := range c.vgpus {
		v.Slice.leave(v)
	}
}

// Close ends the service of the container: it closes all connections, and removes its shares from their slices and its directory.
func (c *Container) Close() error {
	c.stop(errClosing)
	c.leave()
	return os.RemoveAll(c.Dir)
}

// Suspend ends the service of the container like Close, but its directory and session files stay, so that clients can continue until their
// lease ends and reconnect once it is served again.
func (c *Container) Suspend() {
	c.stop(nil)
	c.leave()
}

// stop closes the listener and all connections and waits for their goroutines. Clients receive the reason first, unless it is nil.
func (c *Container) stop(reason *refusal) {
	c.server.mu.Lock()
	delete(c.server.containers, c.ID)
	c.server.mu.Unlock()
	if c.listener != nil {
		c.listener.Close()
	}
	c.mu.Lock()
	if !c.stopped {
		close(c.closing)
	}
	c.stopped = true
	for conn := range c.connections {
		if reason != nil {
			c.server.refuse(conn, reason)
		}
		conn.Close()
	}
	c.mu.Unlock()
	c.serving.Wait()
}

// ErrFixed is returned by Resize for a share that is not elastic: its limit cannot change while it runs.
var ErrFixed = errors.New("only shares of class elastic can be resized while a program runs")

// Resize changes the SM limit of an elastic container. It must be between the request and the initial limit, which is the cap under MPS.
// The new limit applies from the next token on.
func (c *Container) Resize(limit share.PerMille) error {
	for _, v := range c.vgpus {
		if err := v.Slice.resize(v, limit); err != nil {
			return err
		}
	}
	return nil
}

// Reshape takes a container's guaranteed time and SMs away (idleOnly), or gives them back, while its processes run. Without a guarantee it
// gets the time and SMs that the other containers of the slice leave, up to its MPS cap, and nothing while no server runs. Its memory limit
// stays. After an error nothing has changed. The error wraps token.ErrDoesNotFit if the slot table has no room for the guarantee that is to
// be given back.
func (c *Container) Reshape(idleOnly bool) (err error) {
	before := c.isIdleOnly()
	defer func() {
		if err != nil {
			for _, v := range c.vgpus {
				_ = v.Slice.reshape(v, before) // cannot fail: it had that until now
			}
		}
	}()
	for _, v := range c.vgpus {
		if err := v.Slice.reshape(v, idleOnly); err != nil {
			return err
		}
	}
	return c.writePolicy(idleOnly, c.limited())
}

// InUse reports whether there are open connections, or closed ones whose processes may still hold memory.
func (c *Container) InUse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.connections)+c.detached > 0
}

// Connections returns the number of open connections, including those that a launcher holds for programs that have not started.
func (c *Container) Connections() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.connections)
}

func (c *Container) accept() {
	for {
		conn, err := c.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			c.server.Log.Error("failed to accept connection", "container", c.ID, "error", err)
			time.Sleep(acceptRetryDelay)
			continue
		}
		peer, err := c.identify(conn)
		if err == nil {
			err = c.addConnection(conn)
		}
		if err != nil {
			c.refuse(conn, peer, err)
			peer.Close()
			conn.Close()
			continue
		}
		c.serving.Go(func() { c.serveConnection(conn, peer) })
	}
}

// identify returns the process that has connected, and an error unless it belongs to the container. Whether the process is alive is checked
// last: what was read about its PID is valid only if the PID cannot have been reused meanwhile.
func (c *Container) identify(conn *net.UnixConn) (peer process.Process, err error) {
	if peer, err = process.Peer(conn); err != nil || c.Admit == nil {
		return peer, err
	}
	if err := c.Admit(peer); err != nil {
		return peer, &refusal{Stranger, syscall.EPERM, fmt.Sprintf("process %d does not belong to the container: %v", peer.PID, err)}
	}
	if !peer.Alive() {
		return peer, &refusal{Stranger, syscall.EPERM, fmt.Sprintf("process %d has exited", peer.PID)}
	}
	return peer, nil
}

// refuse counts and logs the error for which a connection ends, and sends it to the client if it is a refusal.
func (c *Container) refuse(conn *net.UnixConn, peer process.Process, why error) {
	reason, refused := errors.AsType[*refusal](why)
	if refused {
		c.server.refuse(conn, reason)
		c.mu.Lock()
		c.refusals.add(reason, c.server.Clock.Now())
		c.mu.Unlock()
	}
	if !c.server.allowEvent(c.limits.logLines) {
		return
	}
	if refused {
		c.server.Log.Warn("refused connection", "container", c.ID, "pid", peer.PID, "uid", peer.UID, "error", why)
	} else {
		c.server.Log.Info("closed connection of process", "container", c.ID, "pid", peer.PID, "error", why)
	}
}

// refusals counts the connections of a container's own processes that the server has refused or ended.
type refusals struct {
	count uint64
	last  *refusal
	at    time.Duration // of the last refusal
}

// add counts a refusal, unless the process does not belong to the container or the share has been removed.
func (r *refusals) add(reason *refusal, now time.Duration) {
	if reason.reason != Stranger && reason.reason != Closing {
		r.count, r.last, r.at = r.count+1, reason, now
	}
}

// refusalPeriod is how long a refusal is reported. Refused processes try again much sooner than that.
const refusalPeriod = 5 * time.Second

// current returns why a process is refused at present, or an empty string if none is.
func (r *refusals) current(now time.Duration) string {
	if r.last == nil || now-r.at > refusalPeriod {
		return ""
	}
	return r.last.text
}

// addConnection registers a new connection, or returns why it is refused.
func (c *Container) addConnection(conn *net.UnixConn) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopped:
		return errClosing
	case len(c.connections)+c.detached >= c.server.MaxConnections:
		return errTooMany
	}
	c.connections[conn] = struct{}{}
	return nil
}

// detachConnection closes a connection. Its session counts until endDetached.
func (c *Container) detachConnection(conn *net.UnixConn) {
	conn.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.connections, conn)
	c.detached++
}

func (c *Container) endDetached() {
	c.mu.Lock()
	c.detached--
	empty := len(c.connections)+c.detached == 0 && !c.stopped
	c.mu.Unlock()
	if empty && c.Empty != nil {
		c.Empty()
	}
}

// newLimiter returns a rate limiter for events per second that allows a burst of two seconds' events.
func newLimiter(perSecond int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(perSecond), 2*perSecond)
}

// allowEvent reports whether a rate limiter allows one more event now, by the server's clock.
func (s *Server) allowEvent(l *rate.Limiter) bool {
	return l.AllowN(time.Unix(0, int64(s.Clock.Now())), 1)
}
