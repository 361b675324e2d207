// Package hook runs the C tests of libgshare.so under go test. There is no Go in the hook itself.
package hook

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// needTools skips where the hook cannot be built at all.
func needTools(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"gcc", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
}

var build struct {
	once sync.Once
	dir  string
	err  error
	log  []byte
}

// built compiles the driver, the hook and the tests once and returns their folder.
func built(t *testing.T) string {
	t.Helper()
	needTools(t)
	build.once.Do(func() {
		if build.dir, build.err = os.MkdirTemp("", "gshare-hook"); build.err != nil {
			return
		}
		script := `hook/fake/build.sh "$0" && hack/hook.sh build "$0" && hook/test/build.sh "$0"`
		command := exec.Command("bash", "-c", script, build.dir)
		command.Dir = ".."
		build.log, build.err = command.CombinedOutput()
	})
	if build.err != nil {
		t.Fatalf("build: %v\n%s", build.err, build.log)
	}
	return build.dir
}

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(build.dir)
	os.Exit(code)
}

// run starts a test program with the given environment and reports its lines, one subtest each.
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

// TestParts runs the parts against a model device, without the library.
func TestParts(t *testing.T) {
	dir := built(t)
	for _, name := range []string{"interval_test", "parse_test", "ledger_test", "budget_test", "reap_test"} {
		t.Run(name, func(t *testing.T) { run(t, filepath.Join(dir, name)) })
	}
}

func hooked(dir string) []string {
	return []string{
		"LD_LIBRARY_PATH=" + dir, "LD_PRELOAD=" + filepath.Join(dir, "libgshare.so"),
		"OTHER=" + filepath.Join(dir, "other.so"), "OPERATIONS=200000",
	}
}

// TestLibrary runs programs on the fake driver under the library.
func TestLibrary(t *testing.T) {
	dir := built(t)
	for _, name := range []string{"route_test", "gate_test", "blocks_test", "memory_test", "paths_test", "inherit_test"} {
		t.Run(name, func(t *testing.T) { run(t, filepath.Join(dir, name), hooked(dir)...) })
	}
}

// TestAlone runs without a token server: no policy, then one.
func TestAlone(t *testing.T) {
	dir := built(t)
	program := filepath.Join(dir, "no_server_test")
	t.Run("closed", func(t *testing.T) { run(t, program, append(hooked(dir), "GSHARE_DIR=/nonexistent")...) })
	policy := t.TempDir()
	lines := "version 1\nvgpu 0 none memory 104857600 quota 300 sm 1000\n"
	if err := os.WriteFile(filepath.Join(policy, "policy"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("policy", func(t *testing.T) { run(t, program, append(hooked(dir), "POLICY=1", "GSHARE_DIR="+policy)...) })
}

// TestInterposers puts a second library of the hook's kind before and behind it: neither may find the other for ever.
func TestInterposers(t *testing.T) {
	dir := built(t)
	hook, other := filepath.Join(dir, "libgshare.so"), filepath.Join(dir, "interposer.so")
	for _, preload := range []string{hook + ":" + other, other + ":" + hook} {
		for _, program := range []string{"linked", "opened"} {
			command := exec.Command(filepath.Join(dir, program))
			command.Env = append(os.Environ(), append(hooked(dir), "LD_PRELOAD="+preload, "GSHARE_DIR=/nonexistent")...)
			out, err := command.CombinedOutput()
			// Without a policy the allocation is refused: so the hook was there, and the launches before it went through.
			if err == nil || !bytes.Contains(out, []byte("allocate")) {
				t.Errorf("%s under %s: %v\n%s", program, preload, err, out)
			}
		}
	}
}

// TestWithoutHook is the control: the programs notice when the hook is not there.
func TestWithoutHook(t *testing.T) {
	dir := built(t)
	for _, name := range []string{"route_test", "gate_test", "blocks_test", "memory_test", "paths_test", "no_server_test", "inherit_test"} {
		command := exec.Command(filepath.Join(dir, name))
		command.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir, "OTHER="+filepath.Join(dir, "other.so"))
		if out, err := command.CombinedOutput(); err == nil {
			t.Errorf("%s passes without the hook:\n%s", name, out)
		}
	}
}

// TestExports holds the library to its list: exports, imports, versions, constructors.
func TestExports(t *testing.T) {
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
