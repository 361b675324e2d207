package store

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/api/storewire"
	"github.com/gshare-dev/gshare/vgpu/share"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// lines counts the lines of a log by their text.
type lines struct {
	mu    sync.Mutex
	count map[string]int
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count[r.Message]++
	return nil
}

func (l *lines) of(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count[text]
}

// until waits for something that is to happen.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never happens: ", what)
		}
	}
}

// TestAcceptFails checks that the store goes on after it could not accept a connection, as for lack of file descriptors.
func TestAcceptFails(t *testing.T) {
	log := &lines{count: map[string]int{}}
	r := start(t, func(o *Options) { o.Log = slog.New(log) })
	first := r.dial(t)
	if err := put(first, keyOf("weights"), "weights"); err != nil {
		t.Fatal(err)
	}
	if err := r.listener.SetDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	until(t, "a failed accept", func() bool { return log.of("failed to accept a connection") > 0 })
	if err := r.listener.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []interface {
		Commit(rules.Key) error
	}{first, r.dial(t)} {
		if err := c.Commit(keyOf("other")); !errors.Is(err, rules.ErrAbsent) {
			t.Errorf("afterwards: %v", err)
		}
	}
}

// TestListenerCloses checks that a store whose listener is gone ends, although programs have connections.
func TestListenerCloses(t *testing.T) {
	r := start(t, nil)
	if err := put(r.dial(t), keyOf("weights"), "weights"); err != nil {
		t.Fatal(err)
	}
	r.listener.Close()
	r.await(t, 0)
}

// TestStrangersLeaveRoom lets programs of another namespace connect and ask nothing for a while: most of their connections are closed at once.
func TestStrangersLeaveRoom(t *testing.T) {
	const n = 3 * maxRefused
	var seen atomic.Int32
	r := start(t, func(o *Options) {
		o.Identify = func(process.Process) (string, error) {
			seen.Add(1)
			return "others", nil
		}
	})
	var conns []net.Conn
	for range n {
		conn, err := net.Dial("unixpacket", r.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	until(t, "all are known", func() bool { return seen.Load() == n })
	frame, err := storewire.Request{Version: storewire.Version, Operation: storewire.Get}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, conn := range conns {
		if _, err := conn.Write(frame); err != nil {
			continue // it is closed
		}
		answer := make([]byte, storewire.ResponseSize)
		if size, err := conn.Read(answer); err == nil && size > 0 {
			told++
		}
	}
	if told > 2*maxRefused {
		t.Errorf("%d of %d strangers could stay", told, n)
	}
}

// TestLogIsBounded checks that programs cannot fill the log.
func TestLogIsBounded(t *testing.T) {
	log := &lines{count: map[string]int{}}
	r := start(t, func(o *Options) {
		o.Identify = func(process.Process) (string, error) { return "", errors.New("no container") }
		o.Log = slog.New(log)
	})
	const n = 5 * logLines
	for range n {
		if _, err := r.dial(t).Get(keyOf("weights")); err == nil {
			t.Fatal("a stranger reads")
		}
	}
	if got := log.of("refused a connection"); got == 0 || got > n/2 {
		t.Errorf("%d lines about %d connections", got, n)
	}
}

// TestRequestsAreBounded checks that the store answers no more requests than it may.
func TestRequestsAreBounded(t *testing.T) {
	r := start(t, nil)
	r.requests.SetBurst(3)
	r.requests.SetLimit(rate.Every(time.Hour))
	c := r.dial(t)
	for range 3 {
		if _, err := c.Get(keyOf("weights")); !errors.Is(err, rules.ErrAbsent) {
			t.Fatal(err)
		}
	}
	answered := make(chan error, 1)
	go func() {
		_, err := c.Get(keyOf("weights"))
		answered <- err
	}()
	time.Sleep(20 * time.Millisecond) // in which it would be answered
	r.stop()
	if err := <-answered; errors.Is(err, rules.ErrAbsent) {
		t.Error("one request more is answered")
	}
}

// TestPutsAreBounded checks that a program that asks to store weights over and over, for each of which the store reads all records of the agent, waits
// while others read.
func TestPutsAreBounded(t *testing.T) {
	var looks atomic.Int32
	r := start(t, func(o *Options) {
		o.Declared = func() (map[rules.Digest]share.Bytes, error) {
			looks.Add(1)
			return nil, nil
		}
	})
	r.puts.SetBurst(3)
	r.puts.SetLimit(rate.Every(time.Hour))
	c := r.dial(t)
	for range 3 {
		if _, err := c.Put(keyOf("weights"), 7); !errors.Is(err, rules.ErrSize) {
			t.Fatal(err)
		}
	}
	answered := make(chan error, 1)
	go func() {
		_, err := c.Put(keyOf("weights"), 7)
		answered <- err
	}()
	for range 20 {
		if _, err := r.dial(t).Get(keyOf("weights")); !errors.Is(err, rules.ErrAbsent) {
			t.Errorf("others: %v", err)
		}
	}
	r.stop()
	if err := <-answered; errors.Is(err, rules.ErrSize) || looks.Load() != 3 {
		t.Errorf("one more is answered: %v, %d looks", err, looks.Load())
	}
}

// TestWrongDigestsAreBounded checks that a program that stores wrong weights over and over has the store compute digests for a tenth of the time only, and
// that a right one costs nobody any.
func TestWrongDigestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		right, wrong := keyOf("right"), keyOf("wrong")
		s := New(Options{Digest: func(context.Context, *os.File, share.Bytes, share.Bytes) (rules.Digest, error) {
			time.Sleep(time.Second)
			return right.Digest, nil
		}})
		began := time.Now()
		for _, step := range []struct {
			key   rules.Key
			after time.Duration // since the beginning
		}{{right, time.Second}, {wrong, 2 * time.Second}, {wrong, 12 * time.Second}, {right, 22 * time.Second}, {right, 23 * time.Second}} {
			if _, err := s.digest(t.Context(), nil, rules.Entry{Key: step.key}); err != nil || time.Since(began) != step.after {
				t.Errorf("after %v, want %v, error %v", time.Since(began), step.after, err)
			}
		}
		if _, err := s.digest(t.Context(), nil, rules.Entry{Key: wrong}); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.digest(ctx, nil, rules.Entry{Key: right}); err == nil {
			t.Error("the pause outlasts the store")
		}
	})
}

// TestWriterHangs checks that a program that stores weights and hangs is given up, and others can store them, while one that has stored them may
// keep its connection.
func TestWriterHangs(t *testing.T) {
	r := start(t, func(o *Options) { o.WriteLimit = 100 * time.Millisecond })
	hung, next := r.dial(t), r.dial(t)
	k := keyOf("weights")
	w, err := hung.Put(k, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Memory.Close()
	until(t, "another program stores the weights", func() bool {
		err := put(next, k, "weights")
		if err != nil && !errors.Is(err, rules.ErrBusy) {
			next = r.dial(t) // it was given up, too: the machine took longer than the limit between two of its steps
		}
		return err == nil
	})
	if err := hung.Commit(k); err == nil || errors.Is(err, rules.ErrWriter) {
		t.Errorf("it goes on: %v", err)
	}
	time.Sleep(150 * time.Millisecond)
	if w, err := next.Get(k); err != nil {
		t.Errorf("the one that has stored them: %v", err)
	} else {
		w.Memory.Close()
	}
}

// TestDeviceFull checks that weights without users make room for others also where the device, and not the store's capacity, has none.
func TestDeviceFull(t *testing.T) {
	r := start(t, nil)
	r.memory.setMost(2)
	old, used := r.dial(t), r.dial(t)
	if err := errors.Join(put(old, keyOf("old"), "old"), put(used, keyOf("used"), "used")); err != nil {
		t.Fatal(err)
	}
	old.Close()
	until(t, "the end of a connection", func() bool {
		return slices.ContainsFunc(r.Entries(), func(e rules.Entry) bool { return e.Users == 0 })
	})
	if err := put(used, keyOf("new"), "new"); err != nil {
		t.Errorf("with weights that nobody uses: %v", err)
	}
	if _, err := used.Put(keyOf("newest"), 1); err == nil {
		t.Error("with weights in use others can be stored")
	}
	for _, text := range []string{"used", "new"} {
		if w, err := used.Get(keyOf(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		} else {
			w.Memory.Close()
		}
	}
}
