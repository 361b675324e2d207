package tokenserver_test

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
)

// TestNoDescriptorsForAWhile connects while this process, which is the server's too, may open no more files: the process is
// taken in when it may again.
func TestNoDescriptorsForAWhile(t *testing.T) {
	logged := make(signal, 1)
	r := newRig(t, tempDir(t), func(c *tokenserver.Config) { c.Log = slog.New(slog.NewTextHandler(logged, nil)) })
	r.add(t, "a", half)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	giveBack := noMoreFiles(t, fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Join(r.dir, "a", "token.sock")})
	if err == nil {
		<-logged // that it could not be taken in
	}
	giveBack()
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	c, err := tokenclient.Greet(conn.(*net.UnixConn), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !c.WaitRun(0, patience) {
		t.Error("no token")
	}
}

// TestLogOfCutOffsIsBounded: whoever is cut off a hundred times fills no log.
func TestLogOfCutOffsIsBounded(t *testing.T) {
	var lines atomic.Int64
	r := newRig(t, tempDir(t), func(c *tokenserver.Config) {
		c.Clock, c.Log = stillClock{}, slog.New(slog.NewTextHandler(counter{&lines}, nil))
	})
	container := r.add(t, "a", half)
	for range 100 {
		conn := connect(t, r, "a")
		_, _ = conn.Write([]byte("garbage"))
		answer(t, conn)
	}
	eventually(t, "all are cut off", func() bool { return container.Connections() == 0 })
	if n := lines.Load(); n == 0 || n > 2 {
		t.Errorf("%d lines of log", n)
	}
}

// counter is a log of which only the number of lines counts.
type counter struct{ lines *atomic.Int64 }

func (c counter) Write(line []byte) (int, error) {
	c.lines.Add(1)
	return len(line), nil
}

// signal is a log of which only its lines count.
type signal chan struct{}

func (s signal) Write(line []byte) (int, error) {
	select {
	case s <- struct{}{}:
	default:
	}
	return len(line), nil
}

// noMoreFiles lets this process open no file with a number above that of fd until it is given back, and fills those below.
func noMoreFiles(t *testing.T, fd int) (giveBack func()) {
	t.Helper()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	low := unix.Rlimit{Cur: uint64(fd) + 1, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	var filled []int
	for other, err := unix.Dup(fd); err == nil; other, err = unix.Dup(fd) {
		filled = append(filled, other)
	}
	return func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		for _, other := range filled {
			unix.Close(other)
		}
	}
}
