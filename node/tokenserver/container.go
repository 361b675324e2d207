package tokenserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/unixsocket"
	"github.com/gshare-dev/gshare/vgpu/api/atomicfile"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
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
		c.server.Log.Debug("process connected", "container", c.ID, "pid", peer.PID, "uid", peer.UID)
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
		return peer, &refusal{OtherContainer, syscall.EPERM, fmt.Sprintf("process %d does not belong to the container: %v", peer.PID, err)}
	}
	if !peer.Alive() {
		return peer, &refusal{OtherContainer, syscall.EPERM, fmt.Sprintf("process %d has exited", peer.PID)}
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
	if reason.reason != OtherContainer && reason.reason != Closing {
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

// Status returns the state of a container: its connections, and the use, tokens and processes of each vGPU.
func (c *Container) Status() Status {
	now := c.server.Clock.Now()
	c.mu.Lock()
	status := Status{ID: c.ID, Connections: len(c.connections), Refusals: c.refusals.count, Refused: c.refusals.current(now)}
	reconnected := now-c.since > Lease // before that, processes of an earlier server may still reconnect
	c.mu.Unlock()
	for _, v := range c.vgpus {
		status.VGPUs = append(status.VGPUs, v.status())
		status.SelfPaced = max(status.SelfPaced, status.VGPUs[len(status.VGPUs)-1].SelfPaced)
	}
	if status.Refused == "" && reconnected && c.countUnserved(status.SelfPaced) > status.SelfPaced {
		status.Refused = "a process does not reach the token server"
	}
	return status
}

// Overruns returns how much a container has overrun its tokens, and was delayed by overruns of others. It returns zero if the container is
// nil, as that of a share that is not served, or has several vGPUs.
func (c *Container) Overruns() token.Overruns {
	if c == nil || len(c.vgpus) != 1 {
		return token.Overruns{}
	}
	return c.vgpus[0].status().Overruns
}

func (c *Container) createDir() error {
	if err := os.MkdirAll(filepath.Join(c.Dir, sessionsDir), 0o755); err != nil {
		return err
	}
	if err := c.createLockFile(); err != nil {
		return err
	}
	return c.writePolicy(c.IdleOnly, c.limited())
}

// writePolicy writes the limits that apply while no server runs. Memory limits are those of the given vGPUs.
func (c *Container) writePolicy(idleOnly bool, vgpus []VGPU) error {
	return atomicfile.Update(filepath.Join(c.Dir, PolicyName), []byte(policyText(vgpus, idleOnly)), 0o644)
}

// createLockFile creates the container's lock file, unless an earlier server has: running processes hold their locks on that file. All users
// can read it, or only the owner if the container has one, since whoever can open it can take the locks. It belongs to the agent's user: its
// owner could write it and so fill the file system.
func (c *Container) createLockFile() error {
	name, mode := filepath.Join(c.Dir, lockName), os.FileMode(0o444)
	if c.Owner != nil {
		mode = 0o400
	}
	// O_NONBLOCK: root in the container can hold a lease on the file (F_SETLEASE), and opening it would otherwise block for 45 s.
	file, err := os.OpenFile(name, os.O_CREATE|os.O_RDONLY|unix.O_NONBLOCK, mode)
	if errors.Is(err, unix.EWOULDBLOCK) {
		c.server.Log.Warn("failed to open lock file, processes without a session are not reported", "container", c.ID, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	c.locks = file
	if err := errors.Join(file.Chown(os.Geteuid(), -1), file.Chmod(mode)); err != nil { // earlier versions gave the file to the owner
		return err
	}
	if c.Owner == nil || int(*c.Owner) == os.Geteuid() {
		return nil
	}
	if err := allowReading(name, *c.Owner); err != nil {
		c.server.Log.Warn("failed to let user read lock file, processes get nothing while no server runs", "container", c.ID, "uid", *c.Owner, "error", err)
	}
	return nil
}

// hasUnserved reports whether a process of the container does not follow the server, with a session or without one. Processes without the hook do
// not count.
func (c *Container) hasUnserved() bool { return c.countUnserved(0) > 0 }

// countUnserved returns how many processes of the container do not follow the server, but stops counting above most.
func (c *Container) countUnserved(most int) (count int) {
	if c.locks == nil {
		return 0
	}
	raw, err := c.locks.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) { count = countLocks(fd, tokenwire.UnservedStart, tokenwire.UnservedLength, most) }) // fails only for a closed file
	return count
}

func (c *Container) sessionFile(id uint64) string {
	return filepath.Join(c.Dir, sessionsDir, strconv.FormatUint(id, 16))
}

func (c *Container) removeSessionFile(id uint64) { _ = os.Remove(c.sessionFile(id)) }

// listSessions returns the IDs of the sessions that an earlier server left open.
func (c *Container) listSessions() (ids []uint64, err error) {
	entries, err := os.ReadDir(filepath.Join(c.Dir, sessionsDir))
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if id, err := strconv.ParseUint(entry.Name(), 16, 64); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// Narrow gives a container a smaller part of each window than its share specifies, while its processes run: quota becomes both the request
// and the limit. If quota is the share's own request, the share's own request and limit apply again. What other containers may have does not
// change. Narrow returns a *share.FieldError if quota is not between 1 and the share's request. If the slot table has no room for what is to
// be given back, it changes nothing and returns an error that wraps token.ErrDoesNotFit.
func (c *Container) Narrow(quota share.PerMille) error {
	for i, v := range c.vgpus {
		switch own := c.VGPUs[i]; {
		case own.Elastic:
			return ErrElastic
		case quota < 1 || quota > own.QuotaRequest:
			return share.Invalid("quota", "%v is not between 0.1%% and the %v of the share", quota.Percent(), own.QuotaRequest.Percent())
		case quota == own.QuotaRequest:
			if err := v.Slice.narrow(v, own.QuotaRequest, own.QuotaLimit); err != nil {
				return err
			}
		default:
			if err := v.Slice.narrow(v, quota, quota); err != nil {
				return err
			}
		}
	}
	return c.writePolicy(c.isIdleOnly(), c.limited())
}

// Park takes back the device memory that a container's processes do not hold, so that other containers can have it. From now on the processes
// can allocate only up to what they hold now, rounded up to MiB. So can processes that start later, and all of them while no server runs.
// Park returns that amount for the vGPU that keeps the most. A container that is already parked keeps what it has. If parking is not
// possible, Park changes nothing and returns an error.
func (c *Container) Park() (kept share.Bytes, err error) {
	if c.hasUnserved() {
		return 0, ErrUseUnknown
	}
	for _, v := range c.vgpus {
		if err = v.park(); err != nil {
			break
		}
		kept = max(kept, v.Memory-v.withheldBytes())
	}
	if err == nil {
		err = c.writePolicy(c.isIdleOnly(), c.limited())
	}
	if err == nil && c.hasUnserved() { // it may have allocated memory that the page does not show
		err = ErrUseUnknown
	}
	if err != nil {
		return 0, errors.Join(err, c.Unpark())
	}
	return kept, nil
}

// Unpark gives back the memory that Park has taken.
func (c *Container) Unpark() error {
	for _, v := range c.vgpus {
		v.unpark()
	}
	return c.writePolicy(c.isIdleOnly(), c.limited())
}

// limited returns the container's vGPUs with the memory that its processes may hold now, and the part of the window that they are guaranteed
// now.
func (c *Container) limited() []VGPU {
	all := slices.Clone(c.VGPUs)
	for i := range all {
		switch {
		case i < len(c.vgpus):
			all[i].Memory -= c.vgpus[i].withheldBytes()
			all[i].QuotaRequest = c.vgpus[i].quotaNow()
		case c.Parked: // the vGPU has not joined its slice yet
			all[i].Memory = min(c.Kept, all[i].Memory)
		}
	}
	return all
}

func (c *Container) isIdleOnly() bool {
	v := c.vgpus[0]
	v.Slice.mu.Lock()
	defer v.Slice.mu.Unlock()
	return v.idle
}

// serveConnection handles the frames of one connection of a process until it is closed, and waits until its pages are unused.
func (c *Container) serveConnection(conn *net.UnixConn, peer process.Process) {
	k := &connection{Container: c, conn: conn, peer: peer, limiter: newLimiter(framesPerVGPU * len(c.VGPUs))}
	err := k.run()
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.refuse(conn, peer, err)
	}
	c.detachConnection(conn)
	k.endSession()
	k.inheritor.Close()
	k.peer.Close() // ends the goroutine of watchProcess
	c.endDetached()
}

// ErrElastic is returned by Narrow for a share of class elastic, which is given part of the SMs instead of part of the time.
var ErrElastic = errors.New("the quota of a share of class elastic cannot change")

// Errors of Park.
var (
	// ErrUseUnknown is returned while it is not known how much memory the processes hold, because one of them does not reach the server or
	// has not reconnected since the server started.
	ErrUseUnknown = errors.New("not all processes say how much device memory they hold")
	// ErrNothingFree is returned if the processes hold all of their memory.
	ErrNothingFree = errors.New("the processes have given no device memory back")
)
