package unixsocket

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

// tempDir creates a directory whose name is short enough for a socket in it.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// connectAtOnce connects without waiting for a place in the backlog. The socket is closed at the end of the test.
func connectAtOnce(t *testing.T, name string) error {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return unix.Connect(fd, &unix.SockaddrUnix{Name: name})
}

// TestFlood checks that no more connections are accepted than the rate allows, and that the others fill the backlog. Without the rate, the
// listener would accept all of them.
func TestFlood(t *testing.T) {
	const allowed = 10
	name := filepath.Join(tempDir(t), "socket")
	listener, err := Listen("unix", name, 0o600, rate.NewLimiter(rate.Every(time.Hour), allowed))
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan int)
	go func() {
		n := 0
		for conn, err := listener.AcceptUnix(); err == nil; conn, err = listener.AcceptUnix() {
			conn.Close()
			n++
		}
		accepted <- n
	}()
	connected := 0
	for err = nil; err == nil; connected++ {
		if err = connectAtOnce(t, name); connected > 10*backlog {
			t.Fatalf("%d connections were accepted or are in the backlog", connected)
		}
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Error(err)
	}
	listener.Close() // ends the wait for the rate
	if n := <-accepted; n > allowed {
		t.Errorf("accepted %d connections, the rate allows %d", n, allowed)
	}
}

// TestDialWaits checks that a client is served although the backlog is full when it connects.
func TestDialWaits(t *testing.T) {
	name := filepath.Join(tempDir(t), "socket")
	listener, err := Listen("unix", name, 0o600, NewLimiter())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for connectAtOnce(t, name) == nil {
		continue // until the backlog is full
	}
	if _, err := (&net.Dialer{}).Dial("unix", name); !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("control: package net: %v", err)
	}
	go func() {
		for conn, err := listener.AcceptUnix(); err == nil; conn, err = listener.AcceptUnix() {
			defer conn.Close()
			_, _ = conn.Write([]byte("x"))
		}
	}()
	conn, err := Dial(t.Context(), "unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// TestLongName: the kernel's limit is a sentence, and what it takes is taken.
func TestLongName(t *testing.T) {
	dir := tempDir(t)
	longest := filepath.Join(dir, strings.Repeat("s", maxName-len(dir)-1))
	listener, err := Listen("unix", longest, 0o600, NewLimiter())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for name, open := range map[string]func(string) error{
		"listen": func(name string) error { _, err := Listen("unix", name, 0o600, NewLimiter()); return err },
		"dial":   func(name string) error { _, err := Dial(t.Context(), "unix", name); return err },
	} {
		t.Run(name, func(t *testing.T) {
			if err := open(longest + "s"); err == nil || !strings.Contains(err.Error(), "has 108 bytes, and can have 107") {
				t.Error(err)
			}
		})
	}
	if conn, err := Dial(t.Context(), "unix", longest); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
}

// TestListenReplacesSocketsOnly checks that a socket that was left is replaced, and another file is not.
func TestListenReplacesSocketsOnly(t *testing.T) {
	name := filepath.Join(tempDir(t), "socket")
	for range 2 {
		listener, err := Listen("unix", name, 0o640, NewLimiter())
		if err != nil {
			t.Fatal(err)
		}
		listener.KeepFile() // as if the server were killed
		listener.Close()
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o640 {
			t.Errorf("%v, %v", info, err)
		}
	}
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := Dial(context.Background(), "unix", name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("connect to no socket: %v", err)
	}
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen("unix", name, 0o600, NewLimiter()); err == nil {
		t.Error("a file was replaced")
	}
}

// TestCloseRemovesOwnSocket: a server that ends removes its socket, and not that of a server which has taken its place.
func TestCloseRemovesOwnSocket(t *testing.T) {
	name := filepath.Join(tempDir(t), "socket")
	listen := func() *Listener {
		t.Helper()
		l, err := Listen("unix", name, 0o600, NewLimiter())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	old, next := listen(), listen()
	for range 2 { // a second call does nothing
		old.Close()
		if err := connectAtOnce(t, name); err != nil {
			t.Errorf("the next server cannot be reached: %v", err)
		}
	}
	next.Close()
	if _, err := os.Lstat(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its socket is left: %v", err)
	}
}
