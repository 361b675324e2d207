package standalone

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/api/control"
)

// dialControl connects to the control socket of a node that overHTTP serves.
func dialControl(t *testing.T, n *Node) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", n.Config.Directory+"/control.sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// waitUntilClosed reads until the server has closed the connection.
func waitUntilClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
		t.Error("the connection is still open after a minute")
	}
}

const impatient = 250 * time.Millisecond

func impatientNode(t *testing.T) *Node {
	return newNode(t, tempDir(t), func(o *Options) { o.timing.request = impatient })
}

// TestIdleConnectionsEnd checks that the server closes connections whose callers are silent, at any point of a request.
func TestIdleConnectionsEnd(t *testing.T) {
	n := impatientNode(t)
	overHTTP(t, n)
	for name, sent := range map[string]string{
		"nothing":         "",
		"half a header":   "GET /v1/status HTTP/1.1\r\nHost: agent\r\n",
		"half a body":     "POST /v1/runs HTTP/1.1\r\nHost: agent\r\nContent-Length: 100\r\n\r\n{\"sm\":",
		"a whole request": "GET /v1/status HTTP/1.1\r\nHost: agent\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dialControl(t, n)
			_, _ = io.WriteString(conn, sent) // fails if the machine is so busy that the connection is closed by now
			waitUntilClosed(t, conn)
		})
	}
}

// TestWaitingRequestStays checks that a request which waits for its share outlives the timeouts of other requests.
func TestWaitingRequestStays(t *testing.T) {
	n := impatientNode(t)
	client := overHTTP(t, n)
	holder := newProgram(t)
	all := control.RunRequest{SM: new(int64(200)), MemoryMiB: new(int64(1024))}
	if _, refusal := n.granter.admit(t.Context(), holder.Process, all, nil); refusal != nil {
		t.Fatal(refusal)
	}
	var response *http.Response
	eventually(t, "the request is sent in time", func() bool { // on a busy machine, the server may close a new connection first
		var err error
		response, err = client.Post("http://agent"+control.RunsPath, "", strings.NewReader(`{"sm": 30, "memoryMiB": 1024, "wait": true}`))
		return err == nil
	})
	defer response.Body.Close()
	events := json.NewDecoder(bufio.NewReader(response.Body))
	var event control.Event
	if err := events.Decode(&event); err != nil || event.Waiting == nil {
		t.Fatalf("%+v, %v", event, err)
	}
	for range 6 { // longer than a response may take
		waitUntilClosed(t, dialControl(t, n))
	}
	holder.input.Close()
	event = control.Event{}
	if err := events.Decode(&event); err != nil || event.Grant == nil {
		t.Errorf("%+v, %v", event, err)
	}
}

// TestConnectionsOfAUserAreBounded checks that a user can open no more connections than the limit, until one of them ends.
func TestConnectionsOfAUserAreBounded(t *testing.T) {
	n := newNode(t, tempDir(t))
	overHTTP(t, n)
	answers := func(conn net.Conn) error {
		if _, err := io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: agent\r\n\r\n"); err != nil {
			return err
		}
		_, err := http.ReadResponse(bufio.NewReader(conn), nil)
		return err
	}
	var last net.Conn
	for i := range maxConnections {
		last = dialControl(t, n)
		if i%64 == 0 {
			if err := answers(last); err != nil { // and all before it have been accepted
				t.Fatal(err)
			}
		}
	}
	waitUntilClosed(t, dialControl(t, n))
	if err := answers(last); err != nil {
		t.Errorf("control: a connection within the limit: %v", err)
	}
	last.Close()
	for end := time.Now().Add(time.Minute); answers(dialControl(t, n)) != nil; {
		if time.Now().After(end) {
			t.Fatal("no connection is accepted after one has ended")
		}
	}
}

// TestWaitersOfAUserAreBounded checks that a user can queue no more requests than the limit, and that other users still can.
func TestWaitersOfAUserAreBounded(t *testing.T) {
	n := newNode(t, tempDir(t))
	all := control.RunRequest{SM: new(int64(200)), MemoryMiB: new(int64(1024))}
	if _, refusal := n.granter.admit(t.Context(), newProgram(t).Process, all, nil); refusal != nil {
		t.Fatal(refusal)
	}
	request, err := requestOf(control.RunRequest{SM: new(int64(30)), MemoryMiB: new(int64(1024))})
	if err != nil {
		t.Fatal(err)
	}
	queue := func(uid uint32) (*control.Refusal, bool) {
		return n.granter.admitOrQueue(newWaiter(process.Process{UID: uid}, "", request), true)
	}
	for range maxWaiters {
		if refusal, queued := queue(7); !queued {
			t.Fatal(refusal)
		}
	}
	if refusal, queued := queue(7); queued || !strings.Contains(refusal.Reason, "user 7 already has 128 requests that wait") {
		t.Errorf("queued %v: %+v", queued, refusal)
	}
	if refusal, queued := queue(8); !queued {
		t.Errorf("another user: %+v", refusal)
	}
}

// TestRequestsArePaced checks that a flood of requests is handled at the rate of a user, whose context ends the wait.
func TestRequestsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handled := 0
		callers := newCallers(slog.New(slog.DiscardHandler))
		handler := callers.pace(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled++ }))
		user := &caller{requests: rate.NewLimiter(requestsPerSecond, 2*requestsPerSecond)}
		serve := func(ctx context.Context) {
			request := httptest.NewRequest(http.MethodGet, control.StatusPath, nil)
			handler.ServeHTTP(nil, request.WithContext(context.WithValue(ctx, callerKey{}, callerConn{nil, user})))
		}
		begin := time.Now()
		for range 5 * requestsPerSecond {
			serve(t.Context())
		}
		if took := time.Since(begin); took < 3*time.Second-time.Millisecond || took > 3*time.Second+time.Millisecond || handled != 5*requestsPerSecond {
			t.Errorf("%d requests handled in %v", handled, took)
		}
		gone, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("the caller has gone"))
		if serve(gone); handled != 5*requestsPerSecond {
			t.Error("the request of a caller who has gone was handled")
		}
	})
}

// TestUsersAreForgotten checks that many users who connect once do not stay in memory.
func TestUsersAreForgotten(t *testing.T) {
	callers := newCallers(slog.New(slog.DiscardHandler))
	for uid := range uint32(3 * rememberedUsers) {
		conn := &net.UnixConn{}
		callers.add(uid, conn)
		callers.changed(conn, http.StateClosed)
	}
	if n := len(callers.users); n > rememberedUsers || len(callers.open) > 0 {
		t.Errorf("%d users and %d connections are remembered", n, len(callers.open))
	}
}
