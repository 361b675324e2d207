// Package hostile runs programs with several processes in one container, under the real token server and the real hook, on the fake driver.
package hostile

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/native"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

var build struct {
	once   sync.Once
	folder string
	err    error
	log    []byte
}

// built compiles the fake driver, the hook and the program of the tests on the first call, and returns their folder.
func built(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	build.once.Do(func() {
		if build.folder, build.err = os.MkdirTemp("", "hostile"); build.err != nil {
			return
		}
		if build.err = native.Build("../..", build.folder, native.Driver, native.Hook); build.err != nil {
			return
		}
		command := exec.Command("gcc", "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror", "-pthread",
			"-o", filepath.Join(build.folder, "memory"), "programs/memory.c", "-L"+build.folder, "-l:libcuda.so.1")
		build.log, build.err = command.CombinedOutput()
	})
	if build.err != nil {
		t.Fatalf("build: %v\n%s", build.err, build.log)
	}
	return build.folder
}

func TestMain(m *testing.M) {
	code := m.Run()
	_ = os.RemoveAll(build.folder)
	os.Exit(code)
}

// tempDir returns a new directory. Its name is short, since socket paths are limited to 108 bytes.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gshare")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// serve starts a token server in a directory, with one container that has 512 MiB of device 0 of the fake driver.
func serve(t *testing.T, dir string) *tokenserver.Server {
	t.Helper()
	server := tokenserver.New(tokenserver.Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	t.Cleanup(server.Close)
	tokens, err := token.New(token.Config{})
	if err != nil {
		t.Fatal(err)
	}
	whole := share.Share{SMRequest: share.Whole, SMLimit: share.Whole, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: 512 * share.MiB}
	vgpu := tokenserver.VGPU{Share: whole, Slice: server.NewSlice(tokens), UUID: "GPU-00000000-0000-0000-0000-000000000000"}
	if _, err := server.AddContainer(tokenserver.Spec{ID: "c", Dir: dir, VGPUs: []tokenserver.VGPU{vgpu}}); err != nil {
		t.Fatal(err)
	}
	return server
}

// awaitUnserved waits until a process of the container indicates, by a file lock, that it has no session with the token server.
func awaitUnserved(t *testing.T, dir string) {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, "processes-1"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		lock := unix.Flock_t{Type: unix.F_WRLCK, Start: tokenwire.UnservedStart, Len: tokenwire.UnservedLength}
		if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
			t.Fatal(err)
		}
		if lock.Type != unix.F_UNLCK {
			return
		}
	}
	t.Fatal("timed out waiting until the process says that it has no session")
}

// attempt runs one of the attempts in memory.c, and returns its exit code. It calls restart when the program asks for that.
func attempt(t *testing.T, name string, restart func(), env ...string) int {
	t.Helper()
	command := exec.Command(filepath.Join(built(t), "memory"), name, fmt.Sprint(512))
	command.Env = append(os.Environ(), append(env, "LD_LIBRARY_PATH="+built(t), "FAKE_CUDA_SHARED="+filepath.Join(t.TempDir(), "account"))...)
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = os.Stderr
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(lines.Text())
		if lines.Text() == "restart" {
			restart()
			_, _ = in.Write([]byte{'\n'})
		}
	}
	_ = command.Wait()
	return command.ProcessState.ExitCode()
}

// TestMemory runs programs whose processes together try to get more memory than their container has, as they can without the hook, and
// innocent programs that do something unusual.
func TestMemory(t *testing.T) {
	list := exec.Command(filepath.Join(built(t), "memory"))
	list.Env = append(os.Environ(), "LD_LIBRARY_PATH="+built(t))
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(names)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hook := "LD_PRELOAD=" + filepath.Join(built(t), "libgshare.so")
			dir := tempDir(t)
			server := serve(t, dir)
			restart := func() {
				server.Close()
				awaitUnserved(t, dir)
				server = serve(t, dir)
			}
			if code := attempt(t, name, restart, hook, "GSHARE_DIR="+dir); code != 0 {
				t.Errorf("exit code %d under the hook, want 0", code)
			}
		})
	}
	if code := attempt(t, "just_stays", nil); code != 1 {
		t.Errorf("exit code %d without the hook, want 1: it has too much", code)
	}
}
