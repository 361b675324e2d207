// Package client stores weights in the model store of a slice and reads them. Readers are to map them read-only, as node/store/cuda
// does. The leases of a client end when it is closed.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/unixsocket"
	"github.com/gshare-dev/gshare/vgpu/api/storewire"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/store"
)

// Client is a connection to a store. It is not safe for concurrent use.
type Client struct{ conn *net.UnixConn }

// Weights are the memory of weights that a client was given.
type Weights struct {
	Memory *os.File    // closed by the caller
	Bytes  share.Bytes // of the weights
	Size   share.Bytes // of the memory: this is what to map
}

// Dial connects to the store through its socket.
func Dial(ctx context.Context, socket string) (*Client, error) {
	conn, err := unixsocket.Dial(ctx, "unixpacket", socket)
	if err != nil {
		return nil, err
	}
	return &Client{conn}, nil
}

// Close ends the leases. Mappings stay, but their memory no longer belongs to the store: remove them first.
func (c *Client) Close() error { return c.conn.Close() }

// Get takes a lease of weights. Its errors are those of package store: ErrAbsent if the weights have to be put, ErrBusy while another client
// puts them.
func (c *Client) Get(k store.Key) (*Weights, error) { return c.ask(storewire.Get, k, 0, true) }

// Put gets memory for weights, which the caller maps for writing, fills, unmaps and commits. Its errors are those of package store.
func (c *Client) Put(k store.Key, bytes share.Bytes) (*Weights, error) {
	return c.ask(storewire.Put, k, bytes, true)
}

// Commit ends the writing, and waits until the digest is verified. The client then has a lease of the weights. The error is store.ErrDigest
// if they have another digest, and the weights are dropped then.
func (c *Client) Commit(k store.Key) error {
	_, err := c.ask(storewire.Commit, k, 0, false)
	return err
}

// ask sends a request and returns the memory that comes with its response. If memory is true, there must be some.
func (c *Client) ask(o storewire.Operation, k store.Key, bytes share.Bytes, memory bool) (*Weights, error) {
	frame, err := storewire.Request{Version: storewire.Version, Operation: o, Key: k, Bytes: bytes}.Encode()
	if err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(frame); err != nil {
		return nil, fmt.Errorf("ask the store: %w", err)
	}
	r, file, err := c.receive()
	if err != nil {
		return nil, fmt.Errorf("response of the store: %w", err)
	}
	err = r.Status.Err()
	if err == nil && (file != nil) != memory {
		err = errors.New("the response of the store has no memory, or some that was not asked for")
	}
	if err != nil {
		file.Close() // nil is allowed
		return nil, err
	}
	return &Weights{file, r.Bytes, r.Size}, nil
}

// receive reads a response, and its descriptor if it has one.
func (c *Client) receive() (r storewire.Response, memory *os.File, _ error) {
	frame, rights := make([]byte, storewire.ResponseSize+1), make([]byte, unix.CmsgSpace(4))
	n, space, flags, _, err := c.conn.ReadMsgUnix(frame, rights)
	if err != nil {
		return r, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:space])
	if err != nil {
		return r, nil, err
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return r, nil, err
		}
		for _, fd := range fds { // there is room for one at most
			unix.CloseOnExec(fd)
			memory = os.NewFile(uintptr(fd), "device memory")
		}
	}
	r, err = storewire.DecodeResponse(frame[:n])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("it is longer than a response")
	}
	if err != nil {
		memory.Close()
		memory = nil
	}
	return r, memory, err
}
