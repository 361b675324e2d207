package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/test/native"
)

var build struct {
	once   sync.Once
	folder string
	err    error
}

// built returns a folder with gshare, gshare-model, the hook, the fake driver and its programs, made once for all tests.
func built(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"gcc", "bash", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	build.once.Do(func() { build.folder, build.err = buildAll("../..") })
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.folder
}

func buildAll(root string) (folder string, err error) {
	if folder, err = os.MkdirTemp("", "gsbin"); err != nil {
		return "", err
	}
	run := func(command ...string) error {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", command, err, out)
		}
		return nil
	}
	var builds errgroup.Group
	builds.Go(func() error { return native.Build(root, folder, native.Hook) })
	builds.Go(func() error { return run("go", "build", "-o", filepath.Join(folder, "gshare"), "./cmd/gshare") })
	builds.Go(func() error {
		return run("go", "build", "-o", filepath.Join(folder, "gshare-model"), "./cmd/gshare-model")
	})
	builds.Go(func() error {
		if err := native.Build(root, folder, native.Driver); err != nil {
			return err
		}
		return run("gcc", "-o", filepath.Join(folder, "hold"), "cmd/gshare-node/testdata/hold.c", "-L"+folder, "-l:libcuda.so.1")
	})
	return folder, builds.Wait()
}

// bench is a machine whose device is simulated down to its kernels, on the machine's clock.
type bench struct {
	*machine
	folder  string
	devices int // 0 counts as 1
	gpu     *fakegpu.Simulation
}

func newBench(t *testing.T, lines ...string) *bench {
	t.Helper()
	b := &bench{machine: newMachine(t, lines...), folder: built(t)}
	var err error
	if b.gpu, err = fakegpu.New(fakegpu.Config{Socket: filepath.Join(b.dir, "gpu")}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.gpu.Close() })
	return b
}

// gshare starts the command with what its program needs to find the driver.
func (b *bench) gshare(t *testing.T, args ...string) *fakegpu.Running {
	t.Helper()
	r, err := b.gpu.Start(fakegpu.Client{
		Folder: b.folder, Arguments: append([]string{"gshare", args[0], "--socket", b.socket()}, args[1:]...),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Kill)
	return r
}

// run is gshare run with a share, a program of the folder and its arguments.
func (b *bench) run(t *testing.T, name string, sm, quota int, more ...string) *fakegpu.Running {
	t.Helper()
	flags := []string{"run", "--name", name, "--sm", fmt.Sprint(sm), "--quota", fmt.Sprint(quota), "--mem", "1Gi"}
	return b.gshare(t, append(flags, more...)...)
}

// program is the path of a program of the fake driver's.
func (b *bench) program(name string) string { return filepath.Join(b.folder, name) }
