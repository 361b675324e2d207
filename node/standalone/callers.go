package standalone

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"golang.org/x/time/rate"

	"github.com/gshare-dev/gshare/node/process"
)

// The limits for each user of the control socket.
const (
	maxConnections = 256 // open connections
	maxWaiters     = 128 // requests that may wait for a share
	// requestsPerSecond is the rate at which requests are handled; a burst may have twice as many. Further requests are delayed.
	requestsPerSecond = 100
	// rememberedUsers is the number of users above which users without connections are forgotten.
	rememberedUsers = 1024
)

// callers limits how much each user may demand of the control socket, so that no user keeps others from being served.
type callers struct {
	log      *slog.Logger
	logLimit *rate.Limiter

	mu    sync.Mutex // guards the following
	users map[uint32]*caller
	open  map[net.Conn]*caller
}

// caller is a user with connections to the control socket.
type caller struct {
	connections int
	requests    *rate.Limiter
}

func newCallers(log *slog.Logger) *callers {
	return &callers{log: log, logLimit: rate.NewLimiter(1, 1), users: map[uint32]*caller{}, open: map[net.Conn]*caller{}}
}

// callerKey is the key under which a request's context has the request's connection and user.
type callerKey struct{}

// callerConn is the connection of a request, and its user.
type callerConn struct {
	*net.UnixConn
	user *caller
}

// connOf returns the connection of a request.
func connOf(ctx context.Context) *net.UnixConn { return ctx.Value(callerKey{}).(callerConn).UnixConn }

// connected counts a new connection, and closes it if its user has too many. It is the ConnContext of the server.
func (c *callers) connected(ctx context.Context, conn net.Conn) context.Context {
	unixConn := conn.(*net.UnixConn)
	uid, err := process.PeerUser(unixConn)
	if err != nil {
		conn.Close()
		return ctx
	}
	user, n := c.add(uid, conn)
	if n > maxConnections {
		conn.Close()
		if c.logLimit.Allow() {
			c.log.Warn("closed connection to control socket", "uid", uid, "reason", "too many connections of this user", "limit", maxConnections)
		}
	}
	return context.WithValue(ctx, callerKey{}, callerConn{unixConn, user})
}

// add counts an open connection of a user, and returns how many the user has.
func (c *callers) add(uid uint32, conn net.Conn) (*caller, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	user := c.users[uid]
	if user == nil {
		c.forgetIdle()
		user = &caller{requests: rate.NewLimiter(requestsPerSecond, 2*requestsPerSecond)}
		c.users[uid] = user
	}
	c.open[conn] = user
	user.connections++
	return user, user.connections
}

// forgetIdle removes users without connections and recent requests, if there are many. The caller holds the lock.
func (c *callers) forgetIdle() {
	if len(c.users) < rememberedUsers {
		return
	}
	for uid, user := range c.users {
		if user.connections == 0 && user.requests.Tokens() >= 2*requestsPerSecond {
			delete(c.users, uid)
		}
	}
}

// changed stops counting connections that have ended. It is the ConnState function of the server.
func (c *callers) changed(conn net.Conn, state http.ConnState) {
	if state != http.StateClosed {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if user := c.open[conn]; user != nil {
		user.connections--
		delete(c.open, conn)
	}
}

// pace returns a handler that delays the requests of users who send more than requestsPerSecond.
func (c *callers) pace(handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if caller, ok := r.Context().Value(callerKey{}).(callerConn); ok && caller.user.requests.Wait(r.Context()) == nil {
			handler.ServeHTTP(w, r) // otherwise the caller is gone
		}
	})
}
