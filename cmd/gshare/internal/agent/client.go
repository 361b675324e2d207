// Package agent asks the agent of this machine, gshare-node --standalone, over its control socket.
package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/api/control"
)

// Client talks to one agent.
type Client struct {
	Socket string
	http   http.Client
}

// New gives a client for a socket; empty is the user's own agent, else the machine's.
func New(socket string) *Client {
	if socket == "" {
		socket = defaultSocket()
	}
	c := &Client{Socket: socket}
	c.http.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.Socket)
	}}
	return c
}

func defaultSocket() string {
	machine, _ := config.DefaultDirectory(0, "") // root's never fails
	own, err := config.DefaultDirectory(os.Geteuid(), os.Getenv("XDG_RUNTIME_DIR"))
	if err == nil {
		socket := filepath.Join(own, config.ControlSocket)
		if _, err := os.Stat(socket); err == nil {
			return socket
		}
	}
	return filepath.Join(machine, config.ControlSocket)
}

// Status asks how the machine is shared.
func (c *Client) Status(ctx context.Context) (status control.Status, err error) {
	body, err := c.do(ctx, http.MethodGet, control.StatusPath, nil)
	if err != nil {
		return status, err
	}
	defer body.Close()
	return status, json.NewDecoder(body).Decode(&status)
}

// Run asks for a share for this process; queued hears why it has to wait. A refusal is an error of type *Refused.
func (c *Client) Run(ctx context.Context, r control.RunRequest, queued func(*control.Refusal)) (*control.Grant, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	body, err := c.do(ctx, http.MethodPost, control.RunsPath, bytes.NewReader(text))
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
			return nil, fmt.Errorf("the agent ended before it answered: %w", err)
		}
		switch {
		case event.Grant != nil:
			return event.Grant, nil
		case event.Refused != nil:
			return nil, &Refused{*event.Refused}
		case event.Waiting != nil:
			queued(event.Waiting)
		}
	}
}

// SetLimit moves the limit of an elastic run. A refusal is an error of type *Refused.
func (c *Client) SetLimit(ctx context.Context, r control.LimitRequest) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	body, err := c.do(ctx, http.MethodPost, control.LimitPath, bytes.NewReader(text))
	if err != nil {
		return err
	}
	defer body.Close()
	var event control.Event
	if err := json.NewDecoder(body).Decode(&event); err != nil {
		return fmt.Errorf("the agent ended before it answered: %w", err)
	}
	if event.Refused != nil {
		return &Refused{*event.Refused}
	}
	return nil
}

// Refused is the agent's no.
type Refused struct{ control.Refusal }

func (r *Refused) Error() string { return r.Reason }

func (c *Client) do(ctx context.Context, method, path string, body io.Reader) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(request)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("no agent at %s (gshare-node --standalone starts one): %w", c.Socket, rootOf(err))
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // whatever came is shown
		return nil, fmt.Errorf("the agent says %s: %s", response.Status, bytes.TrimSpace(text))
	}
	return response.Body, nil
}

// rootOf takes off what HTTP wraps around a failed connection.
func rootOf(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}
