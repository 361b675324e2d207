package tokenserver

import (
	"errors"
	"net"
	"time"
)

// acceptAgain is how long a container waits when no process can be taken in: most likely for descriptors.
const acceptAgain = 100 * time.Millisecond

func (c *Container) accept() {
	for {
		conn, err := c.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			c.server.Log.Error("accept a process", "container", c.ID, "err", err)
			time.Sleep(acceptAgain)
			continue
		}
		if why := c.enter(conn); why != nil {
			c.server.refuse(conn, why)
			conn.Close()
			continue
		}
		c.serving.Go(func() { c.serve(conn) })
	}
}

// enter counts a connection in.
func (c *Container) enter(conn *net.UnixConn) *refusal {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.stopped:
		return errShutDown
	case len(c.connections) >= c.server.MaxConnections:
		return errTooMany
	}
	c.connections[conn] = struct{}{}
	return nil
}

const linesPerSecond = 1

func (c *Container) mayLog() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines.allow(c.server.Clock.Now())
}

func (c *Container) exit(conn *net.UnixConn) {
	conn.Close()
	c.mu.Lock()
	delete(c.connections, conn)
	empty := len(c.connections) == 0 && !c.stopped
	c.mu.Unlock()
	if empty && c.Empty != nil {
		c.Empty()
	}
}
