package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gshare-dev/gshare/node/dmem"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
)

// limitCalls returns the calls of the driver's program that set limits.
func limitCalls(r *fixture) (set []string) {
	text, _ := os.ReadFile(filepath.Join(r.dir, "smi", "calls"))
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "--set") {
			set = append(set, strings.ReplaceAll(strings.TrimSpace(line), r.dir, ""))
		}
	}
	return set
}

// withDriver returns an option that makes the agent use a script as the driver's program. The script's calls are recorded.
func withDriver(t *testing.T, script string) func(*Options) {
	return func(o *Options) {
		dir := filepath.Join(o.Config.Directory, "smi")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		program := "#!/bin/sh\necho \"$@\" >>" + filepath.Join(dir, "calls") + "\n" + script
		syscall.ForkLock.RLock() // a child that is forked while a program is written keeps it from being executed
		defer syscall.ForkLock.RUnlock()
		for name, text := range map[string]string{"nvidia-smi": program, "cgroup.controllers": "dmem\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		o.Memory = &dmem.Limiter{Program: filepath.Join(dir, "nvidia-smi"), Mount: dir}
		o.PathOf = func(pid int) (string, error) { return fmt.Sprintf("/of/%d", pid), nil }
	}
}

// TestDriverLimitsMemory: the driver limits the memory of each container on a shared slice once, and the enforcement status shows it. A
// container alone on its device is not limited.
func TestDriverLimitsMemory(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.ReportUnmanaged, withDriver(t, "echo 'hard limit: 1434 MiB'\n"))
	c.granted("a", "GPU-0", 20, 70)
	c.granted("b", "GPU-1", 100, 100)
	c.fixture.wait("probe", func() bool { return c.fixture.metrics.dmem.Load() })
	c.enforced("a", "avoids hook and MPS", true)
	first := c.start("a", "main", "GPU-0")
	c.start("b", "main", "GPU-1")
	c.enforced("a", `"memory":"dmem (1434 MiB), hook, MPS"`, true)
	c.enforced("a", "avoids hook and MPS", false)
	c.wait(5)
	want := fmt.Sprintf("memory-limits --set --soft-limit 0 --hard-limit 1434 --namespace /smi/of/%d -i GPU-0", first.Process.Pid)
	if got := limitCalls(c.fixture); len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
	c.put(first, "a", "main-again") // its next container has another cgroup
	pod := running(placed("a", "GPU-0", 20, 70))
	pod.Status.ContainerStatuses[0].ContainerID = "containerd://a-main-again"
	c.fixture.kubelet.AddPod(pod)
	c.fixture.wait("the next limit", func() bool { return len(limitCalls(c.fixture)) == 2 })
}

// TestDriverRefusesLimits: a limit that the driver refuses is not in the enforcement status, and is tried again.
func TestDriverRefusesLimits(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.ReportUnmanaged, withDriver(t, "[ $2 = --help ]\n"))
	c.granted("a", "GPU-0", 20, 70)
	c.start("a", "main", "GPU-0")
	c.fixture.wait("tries", func() bool { return len(limitCalls(c.fixture)) > 1 })
	c.enforced("a", `"memory":"hook, MPS"`, true)
	c.enforced("a", "avoids hook and MPS", true)
}

// TestNoDriverLimits: a driver without memory limits is probed once.
func TestNoDriverLimits(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.ReportUnmanaged, withDriver(t, "exit 2\n"))
	c.granted("a", "GPU-0", 20, 70)
	c.start("a", "main", "GPU-0")
	c.wait(5)
	if got := limitCalls(c.fixture); len(got) > 0 || c.fixture.metrics.dmem.Load() {
		t.Errorf("%q, and dmem %v", got, c.fixture.metrics.dmem.Load())
	}
	c.enforced("a", `"memory":"hook, MPS"`, true)
}
