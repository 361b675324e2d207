package tokenserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Spec describes a container (or a run) to serve.
type Spec struct {
	ID    string
	Dir   string // its directory: made if it is missing, kept if it is there from an earlier server
	VGPUs []VGPU

	// Admit says whether a process belongs to the container; nil takes everybody.
	Admit func(process.Process) error
	// Launcher is the PID of a process that connects for others and lets them inherit the connection; 0 is none.
	Launcher int
	// Empty is called when the last connection has ended. It must not wait for the container.
	Empty func()
}

// Container is in service until it is closed.
type Container struct {
	Spec
	server   *Server
	listener *net.UnixListener
	vgpus    []*vgpu
	serving  sync.WaitGroup

	mu          sync.Mutex // guards the following
	connections map[*net.UnixConn]struct{}
	stopped     bool
	lines       limiter // of the log: processes may be cut off as often as they like
}

// AddContainer takes a container into service: Prepare and Listen.
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

// Prepare lets the shares of a container join their slices and writes its policy file. A new server prepares all that an
// earlier one left before any of them listens: what is not known to run might be granted to others.
func (s *Server) Prepare(spec Spec) (*Container, error) {
	c := &Container{Spec: spec, server: s, connections: map[*net.UnixConn]struct{}{}, lines: newLimiter(linesPerSecond, s.Clock.Now())}
	if err := c.makeDir(); err != nil {
		return nil, err
	}
	if err := c.join(); err != nil {
		c.leave()
		return nil, err
	}
	return c, nil
}

// Listen takes the processes of a prepared container in.
func (c *Container) Listen() (err error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.server.containers[c.ID] != nil {
		return fmt.Errorf("container %s is served already", c.ID)
	}
	if c.listener, err = listen(filepath.Join(c.Dir, SocketName)); err != nil {
		return err
	}
	c.server.containers[c.ID] = c
	c.serving.Go(c.accept)
	return nil
}

func (c *Container) join() error {
	if len(c.VGPUs) == 0 || len(c.VGPUs) > tokenwire.MaxVGPUs {
		return fmt.Errorf("a container of %d vGPUs; 1 to %d can be served", len(c.VGPUs), tokenwire.MaxVGPUs)
	}
	owed, err := c.owedSessions()
	if err != nil {
		return err
	}
	for _, spec := range c.VGPUs {
		v := &vgpu{VGPU: spec, ghosts: newGhosts(owed, c.server.Clock.Now()+Lease)}
		if v.page, err = newPage[tokenwire.ContainerPage]("gshare-container", fixedSize); err != nil {
			return err
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
	for _, v := range c.vgpus {
		v.Slice.leave(v)
	}
}

// Close takes the container out of service: its processes are cut off, its shares and its directory go.
func (c *Container) Close() error {
	c.stop(errShutDown)
	c.leave()
	return os.RemoveAll(c.Dir)
}

// stop ends listening and all connections, telling them why, and waits for what serves them.
func (c *Container) stop(why *refusal) {
	c.server.mu.Lock()
	delete(c.server.containers, c.ID)
	c.server.mu.Unlock()
	if c.listener != nil {
		c.listener.Close()
	}
	c.mu.Lock()
	c.stopped = true
	for conn := range c.connections {
		if why != nil {
			c.server.refuse(conn, why)
		}
		conn.Close()
	}
	c.mu.Unlock()
	c.serving.Wait()
}

// ErrFixed says that the limit of a share cannot move while it runs.
var ErrFixed = errors.New("only the SMs of class elastic can change while a program runs")

// Resize moves the limit of an elastic container's SMs, between its request and the limit that it began with, which is its cap
// under MPS. The next tokens follow it.
func (c *Container) Resize(limit share.PerMille) error {
	for _, v := range c.vgpus {
		if err := v.Slice.resize(v, limit); err != nil {
			return err
		}
	}
	return nil
}

// Connections is how many there are: processes, and those that hold a connection for later.
func (c *Container) Connections() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.connections)
}
