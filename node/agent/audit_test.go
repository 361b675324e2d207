package agent

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/gpu/nvml"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/test/native"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// session starts a program in the container of a pod, with a session at the token server.
func (c *processFixture) session(pod, slice string) *program {
	c.fixture.t.Helper()
	p := launch(c.fixture.t, exec.Command(os.Args[0]))
	c.put(p, pod, "main")
	p.connect(c.fixture.directory("pod-" + pod))
	c.use(p, slice)
	return p
}

// TestMemoryAudit: a process that has more memory than its share according to the driver, but less according to the hook, is reported, and
// killed if the policy says so. A process at its limit is not, and a process is not killed merely because its memory is not counted.
func TestMemoryAudit(t *testing.T) {
	t.Parallel()
	const gib = 1024 * share.MiB
	for _, policy := range policies[1:] {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			c := newProcessFixture(t, policy)
			for _, uid := range []string{"a", "b", "c"} {
				c.granted(uid, "GPU-0", 20, 30) // and 1 GiB
			}
			c.granted("d", "GPU-1", 100, 50)
			honest, partial, thief := c.session("a", "GPU-0"), c.session("b", "GPU-0"), c.session("c", "GPU-0")
			large := c.session("d", "GPU-1")
			large.charge(gib)
			c.hold(large, gib+617*share.MiB) // includes the context with all SMs of an H100
			honest.charge(gib)
			c.hold(honest, gib+400*share.MiB)
			c.hold(partial, gib)
			thief.charge(100 * share.MiB)
			c.hold(thief, 7*gib)
			c.enforced("a", `"memoryPeakMiB":1024`, true)
			c.enforced("b", "the driver counts 1024 MiB of its processes, the hook 0 MiB, and the share has 1024 MiB", true)
			if policy == config.EndUnmanaged {
				thief.waitKilled()
			} else {
				c.enforced("c", "the driver counts 7168 MiB of its processes, the hook 100 MiB, and the share has 1024 MiB", true)
			}
			c.wait(15)
			if !honest.alive() || !large.alive() || !partial.alive() || thief.alive() != (policy == config.ReportUnmanaged) {
				t.Errorf("alive: within the share %v and %v, uncounted %v, beyond the share %v", honest.alive(), large.alive(), partial.alive(), thief.alive())
			}
			if e := c.fixture.cluster; !e.hasEvent(fmt.Sprintf("pod-c GPUMemoryExceeded process %d ", thief.Process.Pid)) || e.hasEvent("pod-a GPU") || e.hasEvent("pod-d GPU") || !e.hasEvent("pod-b GPUMemoryUncounted") {
				t.Errorf("events %v", e.events)
			}
			answer := httptest.NewRecorder()
			c.fixture.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
			for _, want := range []string{
				`gshare_node_grant_driver_memory_bytes{container="` + filepath.Base(c.fixture.directory("pod-a")) + `",name="main",namespace="default",pod="pod-a"} 1.49`,
				`gshare_node_grant_uncounted_memory_bytes{container="` + filepath.Base(c.fixture.directory("pod-a")) + `",name="main",namespace="default",pod="pod-a"} 0`,
				`gshare_node_grant_uncounted_memory_bytes{container="` + filepath.Base(c.fixture.directory("pod-b")) + `",name="main",namespace="default",pod="pod-b"} 6.43825664e+08`,
				`gshare_node_unmanaged_processes{kind="uncounted",slice="GPU-0"} 1`,
			} {
				if !strings.Contains(answer.Body.String(), want) {
					t.Errorf("no metric %s", want)
				}
			}
			if !c.offered("GPU-0") {
				t.Error("memory marks its slice as used by strangers")
			}
			if policy == config.ReportUnmanaged {
				c.hold(partial, 0)
				c.enforced("b", "the driver counts", false)
			}
		})
	}
}

// TestMemoryAuditParked: a server that claims to have released its memory, but has not, exceeds what it may keep.
func TestMemoryAuditParked(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.EndUnmanaged)
	for _, uid := range []string{"a", "b"} {
		c.granted(uid, "GPU-0", 20, 30)
	}
	honest, liar := c.session("a", "GPU-0"), c.session("b", "GPU-0")
	c.hold(honest, 400*share.MiB)
	c.hold(liar, gib)
	for _, uid := range []types.UID{"a", "b"} {
		id := grant.Owner{UID: uid, Container: "main"}.ID()
		c.fixture.granter.grants.setResidency(id, residency.Reached{Seq: 2, Level: residency.Warm, Memory: 10 * share.MiB})
	}
	liar.waitKilled()
	if !honest.alive() || !c.fixture.cluster.hasEvent("pod-b GPUMemoryExceeded") || c.fixture.cluster.hasEvent("pod-a GPUMemoryExceeded") {
		t.Errorf("events %v", c.fixture.cluster.events)
	}
}

// TestLibraries: a process that uses a GPU without CUDA is reported with its library, with or without a session, and killed only without a
// session. Graphics libraries count in pods, but not outside of them.
func TestLibraries(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.EndUnmanaged)
	c.granted("a", "GPU-0", 20, 30)
	c.granted("b", "GPU-0", 20, 30)
	opened := filepath.Join(t.TempDir(), "libnvidia-opencl.so.535.1")
	launchWith := func(pod string) *program {
		p := launch(t, exec.Command(os.Args[0]))
		c.put(p, pod, "main")
		p.connect("map " + opened)
		return p
	}
	if err := os.WriteFile(opened, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	beside, unhooked, display := launchWith("a"), launchWith("b"), launchWith("")
	beside.connect(c.fixture.directory("pod-a"))
	c.use(beside, "GPU-0")
	c.mu.Lock()
	for _, p := range []*program{unhooked, display} {
		c.on = append(c.on, gpu.Process{PID: p.Process.Pid, Slice: "GPU-0", Graphics: true})
	}
	c.mu.Unlock()
	c.enforced("a", "a process can use the GPU through libnvidia-opencl.so.535.1 without the hook", true)
	unhooked.waitKilled()
	c.fixture.wait("an event", func() bool {
		return c.fixture.cluster.hasEvent("slice GPU-0 through libnvidia-opencl.so.535.1 without the hook, so its time is not limited")
	})
	c.wait(15)
	if !beside.alive() || !display.alive() || !c.offered("GPU-0") {
		t.Errorf("alive: with a session %v, outside of pods %v; offered %v", beside.alive(), display.alive(), c.offered("GPU-0"))
	}
}

// holdMemory starts a program in the container of a pod that allocates device memory of the fake driver, and returns it with its result.
func (c *processFixture) holdMemory(folder, pod string, memory share.Bytes, environment ...string) (p *program, result string) {
	c.fixture.t.Helper()
	cmd := exec.Command("sh", "-c", fmt.Sprintf("read go; exec %s/hold %d", folder, int64(memory)))
	cmd.Env = append(os.Environ(), append(environment, "LD_LIBRARY_PATH="+folder)...)
	p = launch(c.fixture.t, cmd)
	c.put(p, pod, "main")
	fmt.Fprintln(p.input)
	result, _ = p.lines.ReadString('\n')
	return p, strings.TrimSpace(result)
}

// TestMemoryWithoutHook: the driver's count comes from the driver's own account. A program without the hook that takes more than its share
// is reported and killed; a program with the hook that is at its limit to the byte is not.
func TestMemoryWithoutHook(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	const gib, slice = 1024 * share.MiB, "GPU-00000000-0000-0000-0000-000000000000"
	folder := t.TempDir()
	for name, value := range map[string]string{
		"FAKE_CUDA_SHARED": filepath.Join(folder, "account"), "FAKE_NVML_CONTEXT": fmt.Sprint(int64(400 * share.MiB)),
	} {
		os.Setenv(name, value) // also for the fake NVML in this process
	}
	if err := native.Build("../..", folder, native.Driver, native.Hook); err != nil {
		t.Fatal(err)
	}
	source := nvml.New(library.New(library.WithLibraryPath(filepath.Join(folder, "libnvidia-ml.so.1"))))
	c := newProcessFixture(t, config.EndUnmanaged, func(o *Options) {
		o.Source, o.Config.Kubernetes.HookGrace.Duration = source, time.Hour // so that only the memory matters
	})
	c.granted("a", slice, 20, 30) // and 1 GiB
	c.granted("b", slice, 20, 30)
	honest, result := c.holdMemory(folder, "a", gib, "LD_PRELOAD="+filepath.Join(folder, "libgshare.so"), "GSHARE_DIR="+c.fixture.directory("pod-a"))
	if result != "ok" {
		t.Fatalf("with the hook, at its limit: %s", result)
	}
	if _, result := c.holdMemory(folder, "a", 1, "LD_PRELOAD="+filepath.Join(folder, "libgshare.so"), "GSHARE_DIR="+c.fixture.directory("pod-a")); result != "error 2" {
		t.Errorf("with the hook, a byte beyond its limit: %s", result)
	}
	thief, result := c.holdMemory(folder, "b", 3*gib)
	if result != "ok" {
		t.Fatalf("without the hook: %s", result)
	}
	thief.waitKilled()
	reported := "the driver counts 3472 MiB of its processes, the hook 0 MiB, and the share has 1024 MiB"
	if e := c.fixture.cluster; !honest.alive() || e.hasEvent("pod-a GPU") || !e.hasEvent("pod-b GPUMemoryExceeded") || !e.hasEvent(reported) {
		t.Errorf("program at its limit alive: %v; events %v", honest.alive(), e.events)
	}
}
