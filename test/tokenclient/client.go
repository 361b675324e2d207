// Package tokenclient implements the hook's side of the token protocol, for tests without a GPU and without C code.
package tokenclient

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/unixsocket"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// Client is the connection of one process to a token server.
type Client struct {
	Conn    *net.UnixConn
	Welcome tokenwire.Welcome
	VGPUs   []VGPU

	sequence uint64
	mapped   [][]byte
}

// VGPU holds the memory pages of one vGPU that the process shares with the token server.
type VGPU struct {
	Server    *tokenwire.ServerPage
	Container *tokenwire.ContainerPage
	Client    *tokenwire.ClientPage
	Files     [3]int // descriptors of the pages, in the order of the fields above
}

// Connect opens the token socket in a container's directory, without sending a frame.
func Connect(dir string) (*net.UnixConn, error) {
	return unixsocket.Dial(context.Background(), "unixpacket", filepath.Join(dir, "token.sock"))
}

// Dial connects to the token socket in a container's directory and sends HELLO. session is the ID of an earlier session of the process, or
// 0.
func Dial(dir string, session uint64) (*Client, error) {
	conn, err := Connect(dir)
	if err != nil {
		return nil, err
	}
	c, err := Greet(conn, session)
	if err != nil {
		conn.Close()
	}
	return c, err
}

// Greet sends HELLO on a connection, and maps the shared pages that come with the server's answer. session is the ID of an earlier session,
// or 0.
func Greet(conn *net.UnixConn, session uint64) (*Client, error) {
	c := &Client{Conn: conn}
	if err := c.Send(&tokenwire.Hello{HookVersion: 1, PID: uint32(syscall.Getpid()), Capabilities: tokenwire.CapabilityBlocks, Session: session}); err != nil {
		return nil, err
	}
	m, fds, err := c.Receive()
	if err != nil {
		return nil, err
	}
	welcome, ok := m.(*tokenwire.Welcome)
	if !ok {
		return nil, fmt.Errorf("unexpected answer to HELLO: %+v", m)
	}
	c.Welcome = *welcome
	if len(fds) != 3*len(welcome.VGPUs) {
		return nil, fmt.Errorf("got %d descriptors for %d vGPUs", len(fds), len(welcome.VGPUs))
	}
	for i := range welcome.VGPUs {
		if err := c.mapVGPU([3]int(fds[3*i:])); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Client) mapVGPU(fds [3]int) error {
	var pages [3]unsafe.Pointer
	for i, fd := range fds {
		protection := unix.PROT_READ | unix.PROT_WRITE
		if i == 0 {
			protection = unix.PROT_READ
		}
		page, err := unix.Mmap(fd, 0, tokenwire.PageSize, protection, unix.MAP_SHARED)
		if err != nil {
			return fmt.Errorf("map page %d: %w", i, err)
		}
		c.mapped = append(c.mapped, page)
		pages[i] = unsafe.Pointer(&page[0])
		if !(*tokenwire.PageHead)(pages[i]).Valid() {
			return fmt.Errorf("page %d has no valid head", i)
		}
	}
	c.VGPUs = append(c.VGPUs, VGPU{(*tokenwire.ServerPage)(pages[0]), (*tokenwire.ContainerPage)(pages[1]),
		(*tokenwire.ClientPage)(pages[2]), fds})
	return nil
}

// Send sends one frame of the token protocol.
func (c *Client) Send(m tokenwire.Message) error {
	c.sequence++
	frame, err := tokenwire.Encode(tokenwire.Header{Sequence: c.sequence}, m)
	if err != nil {
		return err
	}
	_, err = c.Conn.Write(frame)
	return err
}

// Receive receives one frame of the token protocol, and the file descriptors that come with it.
func (c *Client) Receive() (tokenwire.Message, []int, error) {
	frame, rights := make([]byte, tokenwire.MaxFrame), make([]byte, unix.CmsgSpace(3*tokenwire.MaxVGPUs*4))
	n, control, _, _, err := c.Conn.ReadMsgUnix(frame, rights)
	if err != nil {
		return nil, nil, err
	}
	_, m, err := tokenwire.Decode(frame[:n])
	if err != nil {
		return nil, nil, err
	}
	messages, err := unix.ParseSocketControlMessage(rights[:control])
	if err != nil || len(messages) == 0 {
		return m, nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	return m, fds, err
}

// Close closes the connection without sending BYE, as happens when a process exits.
func (c *Client) Close() error {
	for _, page := range c.mapped {
		_ = unix.Munmap(page)
	}
	for _, v := range c.VGPUs {
		for _, fd := range v.Files {
			_ = unix.Close(fd)
		}
	}
	c.mapped, c.VGPUs = nil, nil
	return c.Conn.Close()
}

// WaitRun sends NEED for a vGPU, and waits until its shared page has the state RUN, as the hook does before a launch. It returns false if
// that takes longer than the limit.
func (c *Client) WaitRun(vgpu int, limit time.Duration) bool {
	v := &c.VGPUs[vgpu]
	end := time.Now().Add(limit)
	v.Client.Waiting.Add(1)
	defer v.Client.Waiting.Add(^uint32(0))
	seen := v.Server.Wake.Load()
	if tokenwire.State(v.Server.State.Load()) == tokenwire.Run {
		return true
	}
	if c.Send(&tokenwire.Need{VGPU: uint32(vgpu)}) != nil {
		return false
	}
	for tokenwire.State(v.Server.State.Load()) != tokenwire.Run {
		if time.Now().After(end) {
			return false
		}
		futexWait(v, seen, 10*time.Millisecond)
		seen = v.Server.Wake.Load()
	}
	return true
}

// WaitToken waits until a vGPU has a token whose sequence number is not after. It sends nothing. It returns false if that takes longer than
// the limit.
func (c *Client) WaitToken(vgpu int, after uint64, limit time.Duration) bool {
	v := &c.VGPUs[vgpu]
	for end := time.Now().Add(limit); ; {
		seen := v.Server.Wake.Load()
		if v.Server.Sequence.Load() != after {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		futexWait(v, seen, 100*time.Millisecond)
	}
}

func futexWait(v *VGPU, seen uint32, limit time.Duration) {
	timeout := unix.NsecToTimespec(int64(limit))
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&v.Server.Wake)), 0, uintptr(seen),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
}
