// Package hook runs the C tests of libgshare.so under go test. There is no Go in the hook itself.
package hook

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/native"
)

// needTools skips the test where gcc or bash is missing.
func needTools(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"gcc", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

// build is the one build of the fake driver, the hook and the C tests that all tests of the package share.
var build struct {
	once sync.Once
	dir  string
	err  error
}

// built compiles the fake driver, the hook and the C tests on the first call and returns their folder.
func built(t *testing.T) string {
	t.Helper()
	needTools(t)
	build.once.Do(func() {
		if build.dir, build.err = os.MkdirTemp("", "gshare-hook"); build.err != nil {
			return
		}
		build.err = native.Build("..", build.dir, native.Hook, native.HookTests)
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.dir
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(build.dir)
	os.Exit(code)
}

// run runs a C test program with the environment and reports each of its "ok" and "not ok" lines as a subtest.
func run(t *testing.T, program string, env ...string) {
	t.Helper()
	command := exec.Command(program)
	command.Env = append(os.Environ(), env...)
	out, err := command.CombinedOutput()
	for _, line := range strings.Split(string(out), "\n") {
		name, failed := strings.CutPrefix(line, "not ok ")
		name, passed := strings.CutPrefix(name, "ok ")
		if passed || failed {
			t.Run(name, func(t *testing.T) {
				if failed {
					t.Errorf("%s", out)
				}
			})
		}
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", filepath.Base(program), err, out)
	}
}

// TestUnits runs the unit tests of the hook's sources, on a model of a device.
func TestUnits(t *testing.T) {
	dir := built(t)
	for _, name := range []string{"interval_test", "parse_test", "ledger_test", "budget_test", "reap_test", "pace_test", "image_test"} {
		t.Run(name, func(t *testing.T) { run(t, filepath.Join(dir, name)) })
	}
}

// hooked returns the environment with which a program in dir runs under the hook.
func hooked(dir string) []string {
	return []string{
		"LD_LIBRARY_PATH=" + dir, "LD_PRELOAD=" + filepath.Join(dir, "libgshare.so"),
		"OTHER=" + filepath.Join(dir, "other.so"), "OPERATIONS=200000",
	}
}

// TestLibrary runs the tests that need the whole library, on the fake driver and with a token server in each test program.
func TestLibrary(t *testing.T) {
	dir := built(t)
	for _, name := range []string{"route_test", "gate_test", "blocks_test", "memory_test", "store_test", "paths_test", "refused_test", "peers_test", "inherit_test"} {
		t.Run(name, func(t *testing.T) { run(t, filepath.Join(dir, name), hooked(dir)...) })
	}
}

// TestTimeNamespace repeats the tests of launches with a server whose clock is an hour ahead of the process's, or behind, as in a time
// namespace.
func TestTimeNamespace(t *testing.T) {
	dir := built(t)
	for _, name := range []string{"gate_test", "blocks_test"} {
		for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
			t.Run(fmt.Sprintf("%s, %v", name, ahead), func(t *testing.T) {
				run(t, filepath.Join(dir, name), append(hooked(dir), fmt.Sprintf("SERVER_AHEAD=%d", ahead.Nanoseconds()))...)
			})
		}
	}
}

// containerDir returns a directory as a container has without a token server: a policy with 100 MiB and the quota, and the lock file.
func containerDir(t *testing.T, quota int) string {
	t.Helper()
	dir := t.TempDir()
	policy := fmt.Sprintf("version 1\nvgpu 0 none memory 104857600 quota %d sm 1000\n", quota)
	for name, text := range map[string]string{"policy": policy, "processes-1": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestNoServer runs without a token server, once without a policy file, where no memory is allowed, and once with one.
func TestNoServer(t *testing.T) {
	dir := built(t)
	program := filepath.Join(dir, "no_server_test")
	t.Run("without a policy", func(t *testing.T) { run(t, program, append(hooked(dir), "GSHARE_DIR=/nonexistent")...) })
	t.Run("with a policy", func(t *testing.T) {
		run(t, program, append(hooked(dir), "POLICY=1", "GSHARE_DIR="+containerDir(t, 300))...)
	})
}

// TestInterposers preloads a second interposing library before or after the hook. RTLD_NEXT must not lead from one to the
// other in a loop.
func TestInterposers(t *testing.T) {
	dir := built(t)
	hook, other := filepath.Join(dir, "libgshare.so"), filepath.Join(dir, "interposer.so")
	for _, preload := range []string{hook + ":" + other, other + ":" + hook} {
		for _, program := range []string{"linked", "opened"} {
			t.Run(program+" under "+strings.ReplaceAll(preload, dir+"/", ""), func(t *testing.T) {
				command := exec.Command(filepath.Join(dir, program))
				command.Env = append(os.Environ(), append(hooked(dir), "LD_PRELOAD="+preload, "GSHARE_DIR=/nonexistent")...)
				out, err := command.CombinedOutput()
				// Without a policy the hook refuses the allocation, which comes after the launches.
				if err == nil || !bytes.Contains(out, []byte("allocate")) {
					t.Errorf("the program got its allocation or stopped before it: %v\n%s", err, out)
				}
			})
		}
	}
}

// TestContexts: in every context, stream and capture, functions return under the hook what they return without it.
func TestContexts(t *testing.T) {
	dir := built(t)
	const one = "version 1\nvgpu 0 none memory 1073741824 quota 1000 sm 1000\n"
	for name, c := range map[string]struct{ devices, policy string }{
		"one device":        {"1", one},
		"two devices":       {"2", one + "vgpu 1 none memory 1073741824 quota 1000 sm 1000\n"},
		"one device of two": {"2", one},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for name, text := range map[string]string{"policy": c.policy, "processes-1": ""} {
				if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			command := exec.Command(filepath.Join(dir, "contexts"))
			command.Env = append(os.Environ(), append(hooked(dir), "FAKE_CUDA_DEVICES="+c.devices, "GSHARE_DIR="+folder)...)
			if out, err := command.CombinedOutput(); err != nil || string(out) != "ok\n" {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// TestWithoutHook checks that the C tests fail without the hook, so that they can fail at all.
func TestWithoutHook(t *testing.T) {
	dir := built(t)
	for _, name := range []string{"route_test", "gate_test", "blocks_test", "memory_test", "store_test", "paths_test", "no_server_test", "refused_test", "peers_test", "inherit_test"} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(filepath.Join(dir, name))
			command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "OTHER="+filepath.Join(dir, "other.so"))
			if out, err := command.CombinedOutput(); err == nil {
				t.Errorf("passed without the hook:\n%s", out)
			}
		})
	}
}

// TestCheck runs the checks of hack/hook.sh: exports, imports, versions, constructors, and cycles of source files.
func TestCheck(t *testing.T) {
	dir := built(t)
	for _, tool := range []string{"nm", "readelf"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	command := exec.Command("hack/hook.sh", "check", dir)
	command.Dir = ".."
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
