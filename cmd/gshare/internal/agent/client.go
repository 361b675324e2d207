// Package agent is a client for the agent of this machine (gshare-node --standalone), over its control socket.
package agent

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gshare-dev/gshare/node/unixsocket"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/api/control"
)

// Client sends requests to one node agent over its Unix control socket.
type Client struct {
	Socket string
	http   http.Client
}

// SocketVariable is the environment variable with the control socket to use.
const SocketVariable = "GSHARE_SOCKET"

// New returns a client for a control socket. If socket is empty, it uses that of SocketVariable, else that of the user's own agent if one is running,
// and otherwise that of the machine's agent.
func New(socket string) *Client {
	if socket = cmp.Or(socket, os.Getenv(SocketVariable)); socket == "" {
		socket = defaultSocket()
	}
	c := &Client{Socket: socket}
	c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return unixsocket.Dial(ctx, "unix", c.Socket)
	}}
	return c
}

func defaultSocket() string {
	machine, _ := config.DefaultDirectory(0, "") // never fails for root
	own, err := config.DefaultDirectory(os.Geteuid(), os.Getenv("XDG_RUNTIME_DIR"))
	if err == nil {
		socket := filepath.Join(own, config.ControlSocket)
		if _, err := os.Stat(socket); err == nil {
			return socket
		}
	}
	return filepath.Join(machine, config.ControlSocket)
}

// Status returns the devices of the machine and the runs on them.
func (c *Client) Status(ctx context.Context) (status control.Status, err error) {
	body, err := c.send(ctx, http.MethodGet, control.StatusPath, nil)
	if err != nil {
		return status, err
	}
	defer body.Close()
	return status, json.NewDecoder(body).Decode(&status)
}

// Run requests a share for this process and blocks until it is granted. While the request
// is queued, it calls queued with the reason, and again when that changes. A refusal is an error of type *control.Refusal.
func (c *Client) Run(ctx context.Context, r control.RunRequest, queued func(*control.Refusal)) (*control.Grant, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	body, err := c.send(ctx, http.MethodPost, control.RunsPath, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	defer body.Close()
	for lines := json.NewDecoder(bufio.NewReader(body)); ; {
		var event control.Event
		if err := lines.Decode(&event); err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, fmt.Errorf("read response of agent: %w", err)
		}
		switch {
		case event.Grant != nil:
			return event.Grant, nil
		case event.Refused != nil:
			return nil, event.Refused
		case event.Waiting != nil:
			queued(event.Waiting)
		}
	}
}

// SetLimit changes the SM limit or the quota of a running program. A refusal is an error of type *control.Refusal.
func (c *Client) SetLimit(ctx context.Context, r control.LimitRequest) error {
	return c.change(ctx, control.LimitPath, r)
}

// Stop ends the processes of a run, and returns once they have ended. A refusal is an error of type *control.Refusal.
func (c *Client) Stop(ctx context.Context, r control.StopRequest) error {
	return c.change(ctx, control.StopPath, r)
}

// change sends a request that is answered by one event.
func (c *Client) change(ctx context.Context, path string, request any) error {
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	body, err := c.send(ctx, http.MethodPost, path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer body.Close()
	var event control.Event
	switch err := json.NewDecoder(body).Decode(&event); {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("read response of agent: %w", err)
	}
	if event.Refused != nil {
		return event.Refused
	}
	return nil
}

// send sends an HTTP request to the agent and returns the body of the response. Any status other than 200 is an error.
func (c *Client) send(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return nil, fmt.Errorf("agent at %s has closed the connection: it is stopping, or this user has too many connections to it", c.Socket)
	case err != nil:
		return nil, fmt.Errorf("connect to agent at %s (is gshare-node --standalone running?): %w", c.Socket, rootCause(err))
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // a partial body is better than none
		return nil, fmt.Errorf("agent returned %s: %s", response.Status, bytes.TrimSpace(text))
	}
	return response.Body, nil
}

// rootCause returns the innermost wrapped error, which lacks the URL that the HTTP client adds.
func rootCause(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}
