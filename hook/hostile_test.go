package hook

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
)

// simulatedGPU returns the socket of a simulated device on the machine's clock, where kernels take time.
func simulatedGPU(t *testing.T) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "gpu")
	gpu, err := fakegpu.New(fakegpu.Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gpu.Close() })
	return socket
}

// TestHostile runs programs that try to have more device memory than they may. By the fake driver's own count, each has more without the
// hook, or it would show nothing, and none has under it.
func TestHostile(t *testing.T) {
	dir := built(t)
	program := filepath.Join(dir, "hostile_test")
	attempt := func(t *testing.T, name string, env ...string) int {
		command := exec.Command(program, name)
		command.Env = append(os.Environ(), append(env, "FAKE_CUDA_DEVICES=2", "FAKE_CUDA_SHARED="+filepath.Join(t.TempDir(), "account"))...)
		if name == "freed_behind_a_kernel" {
			command.Env = append(command.Env, "FAKE_CUDA_SOCKET="+simulatedGPU(t))
		}
		out, err := command.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		t.Logf("%s", out)
		return command.ProcessState.ExitCode()
	}
	list := exec.Command(program)
	list.Env = append(os.Environ(), "LD_LIBRARY_PATH="+dir)
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(names)) {
		t.Run(name, func(t *testing.T) {
			if code := attempt(t, name, "LD_LIBRARY_PATH="+dir); code != 1 {
				t.Fatalf("exit code %d without the hook, want 1: it has too much", code)
			}
			if code := attempt(t, name, hooked(dir)...); code != 0 {
				t.Errorf("exit code %d under the hook, want 0", code)
			}
		})
	}
}

// TestRandomPrograms runs the same programs in each run, as a test that fails by chance would stop other changes: -programs-seed 0 for new ones.
var (
	programsFor  = flag.Duration("programs-for", 4*time.Second, "how long TestRandomPrograms runs")
	programsSeed = flag.Int64("programs-seed", 1, "first seed of TestRandomPrograms; 0 for one from the clock")
)

// TestRandomPrograms runs programs that are made from random numbers. By the fake driver's own count they have more than the limit at some
// moment without the hook, or it would show nothing, and never under it.
func TestRandomPrograms(t *testing.T) {
	dir := built(t)
	program := filepath.Join(dir, "races_test")
	seconds := strconv.FormatFloat(programsFor.Seconds(), 'f', -1, 64)
	if *programsSeed == 0 {
		*programsSeed = time.Now().UnixNano()
	}
	seed := strconv.FormatInt(*programsSeed, 10)
	for name, env := range map[string][]string{"without the hook": {"LD_LIBRARY_PATH=" + dir}, "under the hook": hooked(dir)} {
		t.Run(name, func(t *testing.T) {
			command := exec.Command(program, seconds, seed)
			command.Env = append(append(os.Environ(), "FAKE_CUDA_DEVICES=2"), env...)
			out, err := command.CombinedOutput()
			hooked := name != "without the hook"
			if hooked != (err == nil) || hooked == strings.Contains(string(out), " MiB in ") {
				t.Errorf("%v\n%s", err, out)
			} else {
				t.Logf("%s", out)
			}
		})
	}
}
