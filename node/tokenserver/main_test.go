package tokenserver_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// The test binary also serves as the other processes that tests need: these variables select its role.
const (
	roleVariable = "GSHARE_TEST_ROLE"
	dirVariable  = "GSHARE_TEST_DIR"
)

var roles = map[string]func(dir string) error{
	"connect": connectOnce,
	"linger":  linger,
	"keep":    keep(0),
	"seal":    keep(unix.F_SEAL_SEAL),
	"fix":     keep(unix.F_SEAL_SEAL | unix.F_SEAL_FUTURE_WRITE),
	"freeze":  keep(unix.F_SEAL_FUTURE_WRITE),
	"work":    work,
	"fork":    leaveChild,
	"inherit": inherit,
	"flood":   flood,
	"server":  serveTwo,
}

func TestMain(m *testing.M) {
	role, ok := roles[os.Getenv(roleVariable)]
	if !ok {
		os.Exit(m.Run())
	}
	if err := role(os.Getenv(dirVariable)); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// command returns a command that runs the test binary in a role. The process is killed when the test ends.
func command(t testing.TB, role, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleVariable+"="+role, dirVariable+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	t.Cleanup(func() {
		if cmd.Process != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// start runs the role and waits for its first line.
func start(t testing.TB, role, dir string, files ...*os.File) *exec.Cmd {
	t.Helper()
	cmd := command(t, role, dir)
	cmd.ExtraFiles = files
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("%s printed %q, %v", role, line, err)
	}
	return cmd
}

// connectOnce prints the server's answer to a HELLO.
func connectOnce(dir string) error {
	c, err := tokenclient.Dial(dir, 0)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	return c.Close()
}

// linger connects and waits until it is killed.
func linger(dir string) error {
	c, err := tokenclient.Dial(dir, 0)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = c.Conn.Read(make([]byte, 1))
	return err
}

// keep returns a role that connects, has 400 bytes of memory, adds seals to its page, closes the connection but not its pages, and waits until
// it is killed.
func keep(seals int) func(dir string) error {
	return func(dir string) error {
		c, err := tokenclient.Dial(dir, 0)
		if err != nil {
			return err
		}
		v := c.VGPUs[0]
		v.Container.Memory.Add(400)
		v.Client.Memory.Add(400)
		v.Client.Open.Store(uint64(time.Hour))
		if _, err := unix.FcntlInt(uintptr(v.Files[2]), unix.F_ADD_SEALS, seals); err != nil {
			return err
		}
		if err := c.Conn.Close(); err != nil {
			return err
		}
		fmt.Println("ready")
		select {}
	}
}

// flood connects as fast as it can, without a word, until it is killed.
func flood(dir string) error {
	fmt.Println("ready")
	for {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		_ = unix.Connect(fd, &unix.SockaddrUnix{Name: filepath.Join(dir, tokenserver.SocketName)})
		unix.Close(fd)
	}
}

// work keeps its vGPU busy until it is killed.
func work(dir string) error {
	c, err := tokenclient.Dial(dir, 0)
	if err != nil {
		return err
	}
	for said := false; ; {
		if !c.WaitRun(0, time.Minute) {
			return fmt.Errorf("no token in a minute")
		}
		if !said {
			fmt.Println("ready")
			said = true
		}
		runUntilPaused(c)
	}
}

// runUntilPaused launches kernels of 200 us, one after another, until its page says PAUSE.
func runUntilPaused(c *tokenclient.Client) {
	page := c.VGPUs[0].Client
	for begin := time.Now(); state(c) == tokenwire.Run; begin = time.Now() {
		page.Launches.Add(1)
		for time.Since(begin) < 200*time.Microsecond {
			continue
		}
		page.Busy.Add(uint64(time.Since(begin)))
	}
}

// leaveChild connects and starts a child process that inherits the connection.
func leaveChild(dir string) error {
	c, err := tokenclient.Dial(dir, 0)
	if err != nil {
		return err
	}
	socket, err := c.Conn.File()
	if err != nil {
		return err
	}
	child := exec.Command("sleep", "600")
	child.ExtraFiles = []*os.File{socket}
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: 0}
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Println("ready")
	fmt.Println(child.Process.Pid)
	select {}
}

// inherit sends HELLO on descriptor 3 and waits until it is killed.
func inherit(string) error {
	conn, err := net.FileConn(os.NewFile(3, "inherited"))
	if err != nil {
		return err
	}
	if _, err := tokenclient.Greet(conn.(*net.UnixConn), 0); err != nil {
		return err
	}
	fmt.Println("ready")
	select {}
}

// serveTwo serves two containers of half the window each until it is killed.
func serveTwo(dir string) error {
	server := tokenserver.New(tokenserver.Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	tokens, err := token.New(token.Config{})
	if err != nil {
		return err
	}
	slice := server.NewSlice(tokens)
	var containers []*tokenserver.Container
	for _, name := range []string{"a", "b"} {
		c, err := server.Prepare(tokenserver.Spec{
			ID: name, Dir: filepath.Join(dir, name),
			VGPUs: []tokenserver.VGPU{{Share: half, Slice: slice, UUID: "GPU-0"}},
		})
		if err != nil {
			return err
		}
		containers = append(containers, c)
	}
	for _, c := range containers {
		if err := c.Listen(); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	select {}
}
