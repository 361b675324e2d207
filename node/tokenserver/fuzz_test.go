package tokenserver_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// victim is a container with one process, beside that of a fuzzed client.
type victim struct {
	*tokenserver.Container
	client *tokenclient.Client
}

func newVictim(f *testing.F, r *fixture) victim {
	f.Helper()
	v := victim{Container: r.add(f, "victim", half), client: r.dial(f, "victim")}
	v.client.VGPUs[0].Container.Memory.Store(4711)
	return v
}

// checkUnchanged checks that the victim shows no effect of another container.
func (v victim) checkUnchanged(t *testing.T) {
	t.Helper()
	pages := v.client.VGPUs[0]
	if n := v.Connections(); n != 1 {
		t.Errorf("the neighbour has %d connections", n)
	}
	if memory, limit := pages.Container.Memory.Load(), pages.Server.MemoryLimit.Load(); memory != 4711 || limit != uint64(gib) {
		t.Errorf("the neighbour's page says %d of %d bytes", memory, limit)
	}
}

// frames splits a script into frames, each of which follows its length in two bytes.
func frames(script []byte) (list [][]byte) {
	for len(script) >= 2 {
		n := min(int(binary.LittleEndian.Uint16(script)), len(script)-2)
		list = append(list, script[2:2+n])
		script = script[2+n:]
	}
	return list
}

func script(f *testing.F, messages ...tokenwire.Message) (text []byte) {
	f.Helper()
	for _, m := range messages {
		frame := encode(f, m)
		text = append(binary.LittleEndian.AppendUint16(text, uint16(len(frame))), frame...)
	}
	return text
}

// FuzzFrames sends arbitrary frames: the connection ends in order, leaves nothing behind, and does not affect a neighbour.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x05\x00hello"))
	f.Add(script(f, &tokenwire.Bye{}))
	f.Add(script(f, &tokenwire.Hello{PID: 1, Session: 1 << 63, Devices: []string{"GPU-0"}}, &tokenwire.Need{}, &tokenwire.Bye{}))
	f.Add(script(f, &tokenwire.Hello{}, &tokenwire.Snapshot{Memory: 1 << 63}, &tokenwire.Need{VGPU: 1}))
	f.Add(script(f, &tokenwire.Hello{}, &tokenwire.Hello{}))
	f.Add(script(f, &tokenwire.Welcome{}, &tokenwire.Error{Code: 1, Text: "no"}))
	r := newFixture(f, tempDir(f))
	hostile, other := r.add(f, "a", half), newVictim(f, r)
	f.Fuzz(func(t *testing.T, script []byte) {
		conn := connect(t, r, "a")
		for _, frame := range frames(script) {
			if _, err := conn.Write(frame); err != nil {
				break // cut off
			}
		}
		untilEnd(t, conn)
		eventually(t, "the connection has ended", func() bool { return hostile.Connections() == 0 })
		if left, err := os.ReadDir(filepath.Join(r.dir, "a", "sessions")); err != nil || len(left) > 0 {
			t.Errorf("%d sessions are left, %v", len(left), err)
		}
		other.checkUnchanged(t)
	})
}

// untilEnd closes the sending side and reads until the server closes the connection.
func untilEnd(t *testing.T, conn *net.UnixConn) {
	t.Helper()
	defer conn.Close()
	_ = conn.CloseWrite() // unless it was cut off
	answer := make([]byte, tokenwire.MaxFrame)
	for {
		n, err := conn.Read(answer)
		switch {
		case errors.Is(err, io.EOF) || err == nil && n == 0:
			return
		case errors.Is(err, syscall.ECONNRESET): // frames were left unread; what was said comes next
		case err != nil:
			t.Fatal(err)
		}
	}
}

// FuzzPages writes arbitrary values to the pages that a client may write, while it asks for tokens: the server keeps its own values
// within bounds. A script has pieces of 10 bytes: a page, a word on it, and its value.
func FuzzPages(f *testing.F) {
	f.Add([]byte("\x01\x09\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x07\x00\x00\x00\x00\x00\x00\x00\x80"))
	f.Add([]byte("\x01\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x01\x0c\x01\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x01\x0f\xff\xff\xff\xff\xff\xff\xff\xff\x00\x07\x00\x00\x00\x00\x00\x00\x00\x00"))
	r := newFixture(f, tempDir(f))
	hostile, other := r.add(f, "a", half), newVictim(f, r)
	f.Fuzz(func(t *testing.T, script []byte) {
		c, err := tokenclient.Dial(filepath.Join(r.dir, "a"), 0)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for ; len(script) >= 10; script = script[10:] {
			write(c, script[0], script[1], binary.LittleEndian.Uint64(script[2:]))
			if err := c.Send(&tokenwire.Need{}); err != nil {
				t.Fatalf("cut off: %v", err)
			}
		}
		for _, v := range hostile.Status().VGPUs {
			if v.Busy < 0 || v.Busy > time.Second || v.Used < 0 {
				t.Errorf("busy for %v of the last second, %d bytes", v.Busy, v.Used)
			}
		}
		untilEnd(t, c.Conn)
		eventually(t, "the connection has ended", func() bool { return hostile.Connections() == 0 })
		other.checkUnchanged(t)
	})
}

// write changes a word of the container's page or, if the page is odd, the client's. It keeps the head, without which other
// processes of the container would refuse the page.
func write(c *tokenclient.Client, page, word byte, value uint64) {
	at := unsafe.Pointer(c.VGPUs[0].Container)
	if page%2 == 1 {
		at = unsafe.Pointer(c.VGPUs[0].Client)
	}
	atomic.StoreUint64((*uint64)(unsafe.Add(at, 8+8*int(word))), value)
}
