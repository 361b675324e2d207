package hook

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestInnocent runs ordinary programs that do something unusual, each without the hook, which has to succeed or the scenario is wrong, and
// under it.
func TestInnocent(t *testing.T) {
	dir := built(t)
	simulated := []string{"FAKE_CUDA_SOCKET=" + simulatedGPU(t)}
	for _, c := range []struct {
		scenario string
		env      []string
		times    int
	}{
		{scenario: "at_exit"},
		{scenario: "at_exit", env: simulated},
		{scenario: "close_descriptors"},
		{scenario: "cancel_threads"},
		{scenario: "interval_timer", times: 20},
		{scenario: "small_stack"},
		{scenario: "reset_device"},
		{scenario: "beside_long_kernel", env: simulated},
		{scenario: "fork_server"},
		{scenario: "closed_stdio"},
		{scenario: "fork_unseen"},
		{scenario: "spawn_programs"},
		{scenario: "start_on_small_stack"},
		{scenario: "start_in_threads"},
		{scenario: "unshare_descriptors"},
		{scenario: "main_thread_ends"},
		{scenario: "look_up"},
		{scenario: "contexts_of_other_threads"},
		{scenario: "capture_beside_threads"},
		{scenario: "limited_resources"},
		{scenario: "little_data"},
		{scenario: "no_keys_left"},
		{scenario: "cleared_environment"},
	} {
		name := c.scenario
		if c.env != nil {
			name += " on a simulated device"
		}
		t.Run(name, func(t *testing.T) {
			for range max(1, c.times) {
				runScenario(t, filepath.Join(dir, "innocent_test"), c.scenario, append([]string{"LD_LIBRARY_PATH=" + dir}, c.env...))
				runScenario(t, filepath.Join(dir, "innocent_test"), c.scenario, append(append(hooked(dir), "HOOKED=1"), c.env...))
			}
		})
	}
}

func runScenario(t *testing.T, program, scenario string, env []string) {
	t.Helper()
	command := exec.Command(program, scenario)
	command.Env = append(os.Environ(), env...)
	if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), "ok "+scenario) {
		t.Errorf("%v with %v: %v\n%s", command, env, err, out)
	}
}

// TestThreadSanitizer runs a program that was built with -fsanitize=thread, whose runtime calls dlsym before it is set up itself.
func TestThreadSanitizer(t *testing.T) {
	dir := built(t)
	program := filepath.Join(t.TempDir(), "threads")
	compile := exec.Command("gcc", "-g", "-O1", "-fsanitize=thread", "-pthread", "-o", program, "test/tsan_program.c", "-L"+dir, "-l:libcuda.so.1")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Skipf("gcc has no thread sanitizer: %s", out)
	}
	policy := containerDir(t, 1000)
	for _, env := range [][]string{{"LD_LIBRARY_PATH=" + dir}, append(hooked(dir), "GSHARE_DIR="+policy)} {
		// Some kernels place programs at random where the sanitizer does not expect them; setarch -R keeps them in their place.
		command := exec.Command("setarch", "-R", program)
		command.Env = append(os.Environ(), env...)
		if out, err := command.CombinedOutput(); err != nil || !strings.Contains(string(out), "launched 40000") {
			t.Errorf("with %v: %v\n%s", env, err, out)
		}
	}
}
