package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/unixsocket"
	"github.com/gshare-dev/gshare/vgpu/api/storewire"
	"github.com/gshare-dev/gshare/vgpu/share"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// TestTrimByControl drops weights that are not declared any more before it answers.
func TestTrimByControl(t *testing.T) {
	k := keyOf("w")
	declared := map[rules.Digest]share.Bytes{k.Digest: 2 * share.MiB}
	failure := error(nil)
	s := start(t, func(o *Options) {
		o.Capacity = 0
		o.Declared = func() (map[rules.Digest]share.Bytes, error) { return declared, failure }
	})
	control := Control(filepath.Dir(s.socket))
	listener, err := control.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		s.ServeControl(listener)
		close(ended)
	}()
	c := s.dial(t)
	if err := put(c, keyOf("other"), "other"); !errors.Is(err, rules.ErrSize) {
		t.Errorf("weights that nobody declares: %v", err)
	}
	if err := put(c, k, "w"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	for s.Entries()[0].Users > 0 {
		time.Sleep(time.Millisecond)
	}
	if err := control.Trim(t.Context()); err != nil || s.memory.count() != 1 {
		t.Errorf("%d entries while they are declared, %v", s.memory.count(), err)
	}
	s.mu.Lock() // under which the store calls Declared
	declared = nil
	s.mu.Unlock()
	if err := control.Trim(t.Context()); err != nil || s.memory.count() != 0 {
		t.Errorf("%d entries afterwards, %v", s.memory.count(), err)
	}
	s.mu.Lock()
	failure = errors.New("no records")
	s.mu.Unlock()
	if err := control.Trim(t.Context()); err == nil || err.Error() != "no records" {
		t.Errorf("the store says %v", err)
	}
	listener.Close()
	<-ended
	if err := control.Trim(t.Context()); err == nil {
		t.Error("a store that has ended answers")
	}
}

// TestControlAfterFailedAccept: the store answers the agent again after it could not accept a connection.
func TestControlAfterFailedAccept(t *testing.T) {
	failed := make(chan struct{}, 1)
	s := start(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(signalWriter(failed), nil)) })
	control := Control(filepath.Dir(s.socket))
	listener, err := control.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := listener.SetDeadline(time.Unix(1, 0)); err != nil { // accepts fail, as without file descriptors
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		s.ServeControl(listener)
		close(ended)
	}()
	select {
	case <-failed:
	case <-ended:
		t.Fatal("the store gives up")
	}
	if err := listener.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := control.Trim(t.Context()); err != nil {
		t.Error(err)
	}
}

// signalWriter is a log writer that signals that there was a line.
type signalWriter chan struct{}

func (s signalWriter) Write(line []byte) (int, error) {
	select {
	case s <- struct{}{}:
	default:
	}
	return len(line), nil
}

// TestHungControl gives up on a store that does not answer.
func TestHungControl(t *testing.T) {
	dir, err := os.MkdirTemp("", "gs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	listener, err := Control(dir).Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := Control(dir).Trim(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// own asks the store of a connection whether a descriptor is of its memory.
func own(t *testing.T, socket string, memory *os.File) storewire.Response {
	t.Helper()
	conn, err := unixsocket.Dial(t.Context(), "unixpacket", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	frame, err := storewire.Request{Version: storewire.Version, Operation: storewire.Own}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var rights []byte
	if memory != nil {
		rights = unix.UnixRights(int(memory.Fd()))
	}
	if _, _, err := conn.WriteMsgUnix(frame, rights, nil); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, storewire.ResponseSize+1)
	n, err := conn.Read(answer)
	if err != nil {
		t.Fatal(err)
	}
	r, err := storewire.DecodeResponse(answer[:n])
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestOwn: the store knows its descriptors from all others, also of the same file.
func TestOwn(t *testing.T) {
	r := start(t, nil)
	c := r.dial(t)
	k := keyOf("weights")
	written, err := c.Put(k, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer written.Memory.Close()
	if a := own(t, r.socket, written.Memory); a.Status != storewire.OK || a.Bytes != 0 || a.Size != 2*share.MiB {
		t.Errorf("the writer's: %+v", a)
	}
	if _, err := written.Memory.WriteAt([]byte("weights"), 0); err != nil {
		t.Fatal(err)
	}
	if err := c.Commit(k); err != nil {
		t.Fatal(err)
	}
	read, err := c.Get(k)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Memory.Close()
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", read.Memory.Fd()), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for name, test := range map[string]struct {
		memory *os.File
		status storewire.Status
		bytes  share.Bytes
	}{
		"a reader's":        {read.Memory, storewire.OK, 7},
		"that it was given": {written.Memory, storewire.OK, 7},
		"opened anew":       {again, storewire.Absent, 0},
		"another file":      {os.Stdin, storewire.Absent, 0},
		"none":              {nil, storewire.Malformed, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if a := own(t, r.socket, test.memory); a.Status != test.status || a.Bytes != test.bytes {
				t.Errorf("%+v", a)
			}
		})
	}
	c.Close()
	for r.Entries()[0].Users > 0 {
		time.Sleep(time.Millisecond)
	}
	r.Evict(share.MiB)
	if a := own(t, r.socket, read.Memory); a.Status != storewire.Absent {
		t.Errorf("memory that the store has dropped: %+v", a)
	}
}

// TestOwnOfAnotherWriter: what one process writes is not yet another's.
func TestOwnOfAnotherWriter(t *testing.T) {
	r := start(t, nil)
	w, err := r.dial(t).Put(keyOf("weights"), 7)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Memory.Close()
	r.mu.Lock()
	for c := range r.pids {
		r.pids[c] = -1
	}
	r.mu.Unlock()
	if a := own(t, r.socket, w.Memory); a.Status != storewire.Busy {
		t.Errorf("%+v", a)
	}
}
