package tokenserver_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

func connect(t testing.TB, r *fixture, name string) *net.UnixConn {
	t.Helper()
	conn, err := tokenclient.Connect(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// answer returns the code of the error that the server sends before it closes the connection.
func answer(t testing.TB, conn *net.UnixConn) syscall.Errno {
	t.Helper()
	return syscall.Errno(readError(t, conn).Code)
}

// readError reads the error that the server sends before it closes the connection.
func readError(t testing.TB, conn *net.UnixConn) *tokenwire.Error {
	t.Helper()
	frame := make([]byte, tokenwire.MaxFrame)
	n, err := conn.Read(frame)
	if errors.Is(err, syscall.ECONNRESET) { // the server left frames unread; what it said comes next
		n, err = conn.Read(frame)
	}
	if err != nil {
		t.Fatalf("no answer: %v", err)
	}
	_, m, err := tokenwire.Decode(frame[:n])
	if err != nil {
		t.Fatal(err)
	}
	why, ok := m.(*tokenwire.Error)
	if !ok {
		t.Fatalf("the server says %+v", m)
	}
	if n, err := conn.Read(frame); n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection goes on: %d bytes, %v", n, err)
	}
	return why
}

func encode(t testing.TB, m tokenwire.Message) []byte {
	t.Helper()
	frame, err := tokenwire.Encode(tokenwire.Header{Sequence: 1}, m)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

func TestRefusedBeforeHello(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.add(t, "a", half)
	hello := encode(t, &tokenwire.Hello{})
	major := append([]byte{}, hello...)
	major[4]++
	for name, test := range map[string]struct {
		frame []byte
		want  syscall.Errno
	}{
		"garbage":       {[]byte("GET / HTTP/1.1\r\n\r\n"), syscall.EPROTO},
		"other frame":   {encode(t, &tokenwire.Need{}), syscall.EPROTO},
		"major version": {major, syscall.EPROTO},
		"half a hello":  {hello[:len(hello)-1], syscall.EPROTO},
		"too long":      {append(hello, make([]byte, 2*tokenwire.MaxFrame)...), syscall.EPROTO},
	} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, r, "a")
			if _, err := conn.Write(test.frame); err != nil {
				t.Fatal(err)
			}
			if got := answer(t, conn); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestHelloTimeout(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.HelloTimeout = 20 * time.Millisecond
	r.add(t, "a", half)
	if got := answer(t, connect(t, r, "a")); got != syscall.ETIMEDOUT {
		t.Errorf("got %v", got)
	}
	if n := r.Counters().Refused[tokenserver.Silent]; n != 1 {
		t.Errorf("counted %d times", n)
	}
}

func TestRefusedAfterHello(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.add(t, "a", half)
	for name, test := range map[string]struct {
		frame tokenwire.Message
		text  string
	}{
		"a vGPU that is not there": {&tokenwire.Need{VGPU: 1}, "no vGPU of this index"},
		"a vGPU far away":          {&tokenwire.Need{VGPU: 1 << 31}, "no vGPU of this index"},
		"a server's frame":         {&tokenwire.Welcome{}, "only the server sends"},
		"a second hello":           {&tokenwire.Hello{}, "has sent HELLO before"},
	} {
		t.Run(name, func(t *testing.T) {
			c := r.dial(t, "a")
			if err := c.Send(test.frame); err != nil {
				t.Fatal(err)
			}
			if got := readError(t, c.Conn); syscall.Errno(got.Code) != syscall.EPROTO || !strings.Contains(got.Text, test.text) {
				t.Errorf("got %+v, want %q", got, test.text)
			}
		})
	}
}

// stoppedClock is a clock that never moves, so that a flood of frames exceeds the limit on any machine.
type stoppedClock struct{ tokenserver.RealClock }

func (stoppedClock) Now() time.Duration                { return time.Hour }
func (stoppedClock) NewTimer(func()) tokenserver.Timer { return stoppedTimer{} }

type stoppedTimer struct{}

func (stoppedTimer) Set(time.Duration) {}
func (stoppedTimer) Stop()             {}

func TestRateLimit(t *testing.T) {
	r := newFixture(t, tempDir(t), func(c *tokenserver.Config) { c.Clock = stoppedClock{} })
	r.add(t, "a", half)
	c := r.dial(t, "a")
	var err error
	for i := 0; i < 20_000 && err == nil; i++ {
		err = c.Send(&tokenwire.Need{})
	}
	if err == nil {
		t.Fatal("20,000 frames at once were taken")
	}
	if got := answer(t, c.Conn); got != syscall.EBUSY {
		t.Errorf("got %v", got)
	}
}

// countingClock is a stopped clock that counts the frames of clients.
type countingClock struct {
	stoppedClock
	handled atomic.Int64
}

func (c *countingClock) FrameHandled() { c.handled.Add(1) }

// TestFloodOfManyProcesses checks that the processes of a container cannot together send the server as many frames as each of them may, and that
// those of another container are served meanwhile.
func TestFloodOfManyProcesses(t *testing.T) {
	clock := &countingClock{}
	r := newFixture(t, tempDir(t), func(c *tokenserver.Config) { c.Clock = clock })
	r.add(t, "a", half)
	r.add(t, "b", half)
	var clients []*tokenclient.Client
	for range 8 {
		clients = append(clients, r.dial(t, "a"))
	}
	for _, c := range clients {
		go func() {
			for range 3500 {
				if c.Send(&tokenwire.Need{}) != nil {
					return
				}
			}
		}()
	}
	const burst = 8000 // of a container
	eventually(t, "as many frames as a container may send at once are handled", func() bool { return clock.handled.Load() >= burst })
	r.dial(t, "b")
	if n := clock.handled.Load(); n > burst+10 {
		t.Errorf("%d frames are handled at once", n)
	}
}

// TestSessionOfAnotherProcess checks that a process cannot remove the record of another one's session by naming it as its own earlier one: the
// next server would give the SMs of the other process away while it still runs.
func TestSessionOfAnotherProcess(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.add(t, "a", half)
	dir := filepath.Join(r.dir, "a")
	victim := r.dial(t, "a")
	liar, err := tokenclient.Dial(dir, victim.Welcome.Session)
	if err != nil {
		t.Fatal(err)
	}
	defer liar.Close()
	if _, err := os.Stat(filepath.Join(dir, "sessions", fmt.Sprintf("%x", victim.Welcome.Session))); err != nil {
		t.Error(err)
	}
}

func TestTooManyConnections(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.MaxConnections = 2
	r.add(t, "a", half)
	first, _ := r.dial(t, "a"), r.dial(t, "a")
	if got := answer(t, connect(t, r, "a")); got != syscall.EAGAIN {
		t.Errorf("got %v", got)
	}
	first.Close()
	r.dialAgain(t, "a")
}

// dialAgain connects as soon as the server accepts a process again, and waits for a token.
func (r *fixture) dialAgain(t testing.TB, name string) {
	t.Helper()
	eventually(t, "a process is served", func() bool {
		c, err := tokenclient.Dial(filepath.Join(r.dir, name), 0)
		if err != nil {
			return false
		}
		defer c.Close()
		return c.WaitRun(0, timeout)
	})
}

func TestDescriptorsOfAPeerAreDropped(t *testing.T) {
	r := newFixture(t, tempDir(t))
	container := r.add(t, "a", half)
	before := openResources(t).files
	c := r.dial(t, "a")
	rights := syscall.UnixRights(int(os.Stdin.Fd()), int(os.Stdout.Fd()))
	if _, _, err := c.Conn.WriteMsgUnix(encode(t, &tokenwire.Need{}), rights, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the frame is handled", func() bool { return c.VGPUs[0].Server.Sequence.Load() > 0 })
	c.Close()
	eventually(t, "the connection has ended", func() bool { return !container.InUse() })
	if after := openResources(t).files; after != before {
		t.Errorf("%d files are open, %d before", after, before)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.add(t, "a", half, func(s *tokenserver.Spec) {
		s.Admit = func(p process.Process) error {
			if p.PID != os.Getpid() {
				return errors.New("it is another process")
			}
			return nil
		}
	})
	r.dial(t, "a")
	cmd := command(t, "connect", filepath.Join(r.dir, "a"))
	out, err := cmd.Output()
	if err == nil {
		t.Errorf("another process was admitted: %s", out)
	}
}

// TestStrangersTakeNoPlace checks that a connection does not count for its container before its process is known to belong to it.
func TestStrangersTakeNoPlace(t *testing.T) {
	r := newFixture(t, tempDir(t))
	asked := make(chan int, 1)
	r.add(t, "a", half, func(s *tokenserver.Spec) {
		s.Admit = func(process.Process) error {
			asked <- r.Snapshot()[0].Connections
			return errors.New("nobody belongs to it")
		}
	})
	if got := answer(t, connect(t, r, "a")); got != syscall.EPERM {
		t.Errorf("got %v", got)
	}
	if n := <-asked; n != 0 {
		t.Errorf("%d connections counted while the server asked whether the process belongs to the container", n)
	}
}

// TestRefusedProcessIsReported checks that the status of a container tells why a process is refused, for as long as it may try again.
func TestRefusedProcessIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		provoke func(t *testing.T, r *fixture)
		want    string
	}{
		"too many": {func(t *testing.T, r *fixture) {
			r.dial(t, "a")
			answer(t, connect(t, r, "a"))
		}, "as many processes with a session as it may have"},
		"recvmsg refused": {func(t *testing.T, r *fixture) {
			c := r.dial(t, "a")
			if err := c.Send(&tokenwire.Bye{}); err != nil {
				t.Fatal(err)
			}
		}, "cannot receive its session"},
		"ends as usual": {func(t *testing.T, r *fixture) {
			c := r.dial(t, "a")
			if err := errors.Join(c.Send(&tokenwire.Need{}), c.Send(&tokenwire.Bye{})); err != nil {
				t.Fatal(err)
			}
		}, ""},
		"closes its connection": {func(t *testing.T, r *fixture) {
			c := r.dial(t, "a")
			if err := c.Send(&tokenwire.Need{}); err != nil {
				t.Fatal(err)
			}
			c.Close()
		}, ""},
		"belongs to another container": {func(t *testing.T, r *fixture) { answer(t, connect(t, r, "b")) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &handClock{now: time.Hour}
			r := newFixture(t, tempDir(t), func(c *tokenserver.Config) { c.MaxConnections, c.Clock = 1, clock })
			container := r.add(t, "a", half)
			r.add(t, "b", half, func(s *tokenserver.Spec) {
				s.Admit = func(process.Process) error { return errors.New("nobody belongs to it") }
			})
			test.provoke(t, r)
			if test.want == "" {
				eventually(t, "the connection has ended", func() bool { return container.Connections() == 0 })
			} else {
				eventually(t, "a refusal is reported", func() bool { return strings.Contains(container.Status().Refused, test.want) })
			}
			if got := container.Status(); (got.Refused == "") != (test.want == "") || (got.Refusals == 0) != (test.want == "") {
				t.Errorf("refused %d times: %q, want %q", got.Refusals, got.Refused, test.want)
			}
			clock.advance(6 * time.Second)
			if got := container.Status().Refused; got != "" {
				t.Errorf("still reported: %q", got)
			}
		})
	}
}

// TestUnservedProcessIsReported checks that the status reports a process that has locked a byte because it has no session, once the processes
// of an earlier server have had the time to reconnect.
func TestUnservedProcessIsReported(t *testing.T) {
	clock := &handClock{now: time.Hour}
	r := newFixture(t, tempDir(t), func(c *tokenserver.Config) { c.Clock = clock })
	container := r.add(t, "a", half)
	file, err := os.Open(filepath.Join(r.dir, "a", "processes-1"))
	if err != nil {
		t.Fatal(err)
	}
	lock := func(offset int64) {
		t.Helper()
		byteLock := unix.Flock_t{Type: unix.F_RDLCK, Start: tokenwire.UnservedStart + offset, Len: 1}
		if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &byteLock); err != nil {
			t.Fatal(err)
		}
	}
	refused := func() bool { return container.Status().Refused != "" }
	lock(-1)
	lock(tokenwire.UnservedLength) // both mean something else
	clock.advance(tokenserver.Lease + 1)
	if refused() {
		t.Error("control: another lock counts")
	}
	lock(12345)
	if !refused() {
		t.Error("a process without a session is not reported")
	}
	clock.advance(-2)
	if refused() {
		t.Error("it is reported although it may reconnect")
	}
	clock.advance(2)
	file.Close()
	if refused() {
		t.Error("it is reported although it has ended")
	}
}

// TestSelfPacedProcessIsReported checks that a process which has a session and paces itself is reported as such, not as one that does not reach the
// server; beside it, a process without a session is still reported.
func TestSelfPacedProcessIsReported(t *testing.T) {
	clock := &handClock{now: time.Hour}
	r := newFixture(t, tempDir(t), func(c *tokenserver.Config) { c.Clock = clock })
	container := r.add(t, "a", half)
	client := r.dial(t, "a")
	clock.advance(tokenserver.Lease + 1)
	file, err := os.Open(filepath.Join(r.dir, "a", "processes-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for i, test := range []struct {
		offset    int64 // of the byte that one more process locks
		selfPaced uint32
		refused   bool
	}{{77, 0, true}, {77, 1, false}, {5, 1, true}, {9000, 1, true}} {
		byteLock := unix.Flock_t{Type: unix.F_RDLCK, Start: tokenwire.UnservedStart + test.offset, Len: 1}
		if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &byteLock); err != nil {
			t.Fatal(err)
		}
		client.VGPUs[0].Client.SelfPaced.Store(test.selfPaced)
		if got := container.Status(); got.SelfPaced != int(test.selfPaced) || (got.Refused != "") != test.refused {
			t.Errorf("step %d: %d self-paced, refused: %q", i, got.SelfPaced, got.Refused)
		}
	}
}

// TestRefusalsAreLogged checks that the log names the process of a refused connection, and the reason.
func TestRefusalsAreLogged(t *testing.T) {
	var log bytes.Buffer
	r := newFixture(t, tempDir(t), func(c *tokenserver.Config) {
		c.MaxConnections, c.Log = 1, slog.New(slog.NewTextHandler(&log, nil))
	})
	r.add(t, "a", half)
	r.dial(t, "a")
	answer(t, connect(t, r, "a"))
	r.Close() // the log is written before
	for _, want := range []string{`"refused connection"`, "container=a", fmt.Sprintf("pid=%d ", os.Getpid()), "as many processes"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s: %s", want, &log)
		}
	}
}

// TestOrderlyEndsAreNotLogged checks that a process that closes its connection leaves nothing in the log, at the default level or above.
func TestOrderlyEndsAreNotLogged(t *testing.T) {
	var log bytes.Buffer
	r := newFixture(t, tempDir(t), func(c *tokenserver.Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	container := r.add(t, "a", half)
	c := r.dial(t, "a")
	c.Close()
	eventually(t, "the connection has ended", func() bool { return container.Connections() == 0 })
	r.Close() // the log is written before
	if strings.Contains(log.String(), "closed connection") {
		t.Errorf("it is logged: %s", &log)
	}
}

// TestRandomFrames sends damaged frames to a server and checks that it still serves others.
func TestRandomFrames(t *testing.T) {
	r := newFixture(t, tempDir(t))
	container := r.add(t, "a", half)
	random := rand.New(rand.NewPCG(1, 2))
	valid := [][]byte{
		encode(t, &tokenwire.Hello{Devices: []string{"GPU-0"}, Session: 7}), encode(t, &tokenwire.Need{}),
		encode(t, &tokenwire.Snapshot{}), encode(t, &tokenwire.Bye{}),
	}
	for range 300 {
		conn := connect(t, r, "a")
		for range 1 + random.IntN(4) {
			frame := append([]byte{}, valid[random.IntN(len(valid))]...)
			for range random.IntN(3) {
				frame[random.IntN(len(frame))] ^= byte(1 << random.IntN(8))
			}
			if _, err := conn.Write(frame[:1+random.IntN(len(frame))]); err != nil {
				break // it was cut off
			}
		}
		conn.Close()
	}
	eventually(t, "all connections have ended", func() bool { return container.Connections() == 0 })
	r.dialAgain(t, "a") // as often as it takes: some of the 300 may still wait to be accepted, and together be too many
}
