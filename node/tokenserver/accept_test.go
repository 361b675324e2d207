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

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/tokenclient"
)

// TestAcceptWithoutDescriptors connects while this process, which is also the server, has no free file descriptors, and checks that
// the connection is accepted once it has some.
func TestAcceptWithoutDescriptors(t *testing.T) {
	logged := make(signal, 1)
	r := newFixture(t, tempDir(t), func(c *tokenserver.Config) { c.Log = slog.New(slog.NewTextHandler(logged, nil)) })
	r.add(t, "a", half)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	restore := exhaustDescriptors(t, fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Join(r.dir, "a", "token.sock")})
	if err == nil {
		<-logged // that it could not be taken in
	}
	restore()
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	c, err := tokenclient.Greet(conn.(*net.UnixConn), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if !c.WaitRun(0, timeout) {
		t.Error("no token")
	}
}

// TestLogIsRateLimited checks that a hundred refused connections do not fill the log.
func TestLogIsRateLimited(t *testing.T) {
	var lines atomic.Int64
	r := newFixture(t, tempDir(t), func(c *tokenserver.Config) {
		c.Clock, c.Log = stoppedClock{}, slog.New(slog.NewTextHandler(counter{&lines}, nil))
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

// counter is a log writer that counts lines.
type counter struct{ lines *atomic.Int64 }

func (c counter) Write(line []byte) (int, error) {
	c.lines.Add(1)
	return len(line), nil
}

// signal is a log writer that signals each line.
type signal chan struct{}

func (s signal) Write(line []byte) (int, error) {
	select {
	case s <- struct{}{}:
	default:
	}
	return len(line), nil
}

// exhaustDescriptors limits this process to descriptors up to fd, and opens all that are free below it. The returned function
// undoes both.
func exhaustDescriptors(t *testing.T, fd int) (restore func()) {
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
