package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/injection"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/process"
	fakemps "github.com/gshare-dev/gshare/test/fake/mps"
	"github.com/gshare-dev/gshare/test/native"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
)

// becomeClient makes this program a client of the fake MPS, as the fake driver does, and prints what the server sends it later.
func becomeClient(pipe string) {
	answer := make([]byte, 64)
	for {
		conn, err := fakemps.Open(filepath.Join(pipe, "control"), fakemps.Client)
		if err == nil {
			_, err = conn.Read(answer)
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		if strings.HasPrefix(string(answer), "wait") { // the server is starting
			conn.Close()
			time.Sleep(time.Millisecond)
			continue
		}
		go func() {
			n, _ := conn.Read(answer)
			fmt.Println("mps says", strings.Trim(string(answer[:n]), "\x00"))
		}()
		fmt.Println("ready")
		return
	}
}

// namespaces is the branch of the fake driver whose MPS has them.
const namespaces = "r615"

// withMPS returns an option that makes the agent run the fake MPS, that of the default branch or of another.
func withMPS(t *testing.T, branch ...string) func(*Options) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	dir, err := os.MkdirTemp("", "gm") // of a name that leaves room for a socket's
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := native.Build("../..", dir, native.Driver); err != nil {
		t.Fatal(err)
	}
	control := filepath.Join(dir, filepath.Join(branch...), "nvidia-cuda-mps-control")
	return func(o *Options) {
		o.MPS = mps.Daemons{Dir: filepath.Join(dir, "pipes"), Program: control, Simulated: true, CommandTimeout: time.Minute}
	}
}

// daemon returns the PID of a slice's daemon; 0 where there is none.
func (r *fixture) daemon(slice string) (pid int) {
	r.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		r.t.Fatal(err)
	}
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil || process.Program(p) != filepath.Base(r.MPS.Program) {
			continue
		}
		environment, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if strings.Contains(string(environment), r.MPS.PipeDir(slice)+"\x00") && strings.Contains(string(line), "\x00-d\x00") {
			pid = p
		}
	}
	return pid
}

// client starts a program in a container that is a client of MPS.
func (c *processFixture) client(pod, container, slice string) *program {
	c.fixture.t.Helper()
	return c.clientBy(c.fixture.MPS.ClientDir(slice), pod, container, slice)
}

// clientBy starts a client that connects by a directory of pipes.
func (c *processFixture) clientBy(pipe, pod, container, slice string) *program {
	c.fixture.t.Helper()
	p := c.start(pod, container, slice)
	p.connect("mps " + pipe)
	return p
}

// TestMPS: a shared slice has a daemon of its own before the container starts, and only its pipes are mounted. While clients of a dead
// daemon live, no container starts there; then it does.
func TestMPS(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.ReportUnmanaged, withMPS(t))
	r := c.fixture
	cdi := r.pod("a", "GPU-0", 30, 50)
	spec, err := r.createSoon("a", cdi)
	if err != nil || !strings.Contains(spec, `"hostPath":"`+r.MPS.ClientDir("GPU-0")+`"`) || strings.Contains(spec, "GPU-1") {
		t.Fatalf("%v: %s", err, spec)
	}
	r.kubelet.AddPod(running(placed("a", "GPU-0", 30, 50)))
	daemon := r.daemon("GPU-0")
	if daemon == 0 || r.daemon("GPU-1") != 0 {
		t.Fatalf("daemons: %d and %d", daemon, r.daemon("GPU-1"))
	}
	c.enforced("a", "MPS, 32 of 108 SMs", true)
	client := c.client("a", "main", "GPU-0")
	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.wait("end of the daemon", func() bool { return r.daemon("GPU-0") != daemon })
	second := r.pod("b", "GPU-0", 20, 40)
	created := make(chan error, 1)
	go func() {
		_, err := r.createSoon("b", second)
		created <- err
	}()
	_ = client.Process.Kill()
	<-client.ended
	c.leave()
	if err := <-created; err != nil {
		t.Errorf("after its clients have ended: %v", err)
	}
	if now := r.daemon("GPU-0"); now == 0 || now == daemon {
		t.Errorf("daemon %d after %d", now, daemon)
	}
	r.kubelet.RemovePod("a")
	r.kubelet.RemovePod("b")
	r.wait("end of the daemon", func() bool { return r.daemon("GPU-0") == 0 })
}

// TestSharedMemory: containers on a shared slice have the shared memory of its MPS daemon, which is unmounted with the last of them.
func TestSharedMemory(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("unshare", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("needs root, to mount file systems: %v: %s", err, out)
	}
	c := newProcessFixture(t, config.ReportUnmanaged, withMPS(t), func(o *Options) { o.MPS.OwnSharedMemory = true })
	r := c.fixture
	spec, err := r.createSoon("a", r.pod("a", "GPU-0", 30, 50))
	memory := r.MPS.SharedMemory("GPU-0")
	if want := `"hostPath":"` + memory + `","containerPath":"/dev/shm"`; err != nil || !strings.Contains(spec, want) {
		t.Errorf("%v: %s", err, spec)
	}
	if _, err := os.Stat(memory); err != nil {
		t.Error(err)
	}
	r.kubelet.AddPod(running(placed("a", "GPU-0", 30, 50)))
	r.kubelet.RemovePod("a")
	r.wait("end of the memory", func() bool {
		_, err := os.Stat(filepath.Dir(memory))
		return os.IsNotExist(err)
	})
}

// pipeOf returns the directory of pipes that a container gets.
func pipeOf(t *testing.T, spec string) string {
	t.Helper()
	var file struct {
		Edits struct {
			Mounts []struct{ HostPath, ContainerPath string }
		} `json:"containerEdits"`
		Devices []struct {
			Edits struct {
				Mounts []struct{ HostPath, ContainerPath string }
			} `json:"containerEdits"`
		}
	}
	if err := json.Unmarshal([]byte(spec), &file); err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Devices {
		for _, m := range d.Edits.Mounts {
			if m.ContainerPath == injection.MPSDir+"/GPU-0" {
				return m.HostPath
			}
		}
	}
	t.Fatalf("no pipes of MPS: %s", spec)
	return ""
}

// TestNamespaces: with MPS namespaces each container gets only the pipes of its own, and the enforcement status shows it. The next agent
// adopts them, and none outlives its container.
func TestNamespaces(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.ReportUnmanaged, withMPS(t, namespaces))
	r := c.fixture
	pipes := map[string]string{}
	for _, pod := range []string{"a", "b"} {
		spec, err := r.createSoon(pod, r.pod(pod, "GPU-0", 30, 50))
		if err != nil {
			t.Fatal(err)
		}
		r.kubelet.AddPod(running(placed(pod, "GPU-0", 30, 50)))
		pipes[pod] = pipeOf(t, spec)
	}
	if filepath.Dir(filepath.Dir(pipes["a"])) != r.MPS.PipeDir("GPU-0") || pipes["a"] == pipes["b"] {
		t.Errorf("pipes %v", pipes)
	}
	c.enforced("a", "MPS namespace, 32 of 108 SMs", true)
	c.enforced("a", "hook, MPS namespace", true)
	c.enforced("a", "changes its environment loosens", false)
	c.enforced("a", "can drop MPS' limit of memory by its environment", true) // found by NVIDIA with driver 615.71
	c.clientBy(pipes["a"], "a", "main", "GPU-0")
	c.start("b", "main", "GPU-0")
	c.enforced("b", "runs without MPS", true)
	c.enforced("a", "runs without MPS", false)
	daemon := r.daemon("GPU-0")
	r.stop()
	r.cluster.mu.Lock()
	delete(r.cluster.enforced, "a") // so that the next agent is waited for
	r.cluster.mu.Unlock()
	began := time.Now()
	r.start()
	c.enforced("a", "MPS namespace, 32 of 108 SMs", true)
	took := time.Since(began)
	if r.daemon("GPU-0") != daemon {
		t.Error("the daemon was not adopted")
	}
	if took < retryFor && r.cluster.hasEvent("GPUSliceClosed") { // later, the agent says what it still waits for
		t.Error("an event about a running container says that it does not start")
	}
	r.kubelet.RemovePod("b")
	r.wait("end of a namespace", func() bool { return !there(pipes["b"]) })
	if !there(pipes["a"]) {
		t.Error("the namespace of another container was removed too")
	}
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestWithoutMPS: the enforcement status of a pod shows a process that is no client of MPS.
func TestWithoutMPS(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.ReportUnmanaged, withMPS(t))
	c.granted("a", "GPU-0", 30, 50)
	c.granted("b", "GPU-0", 30, 50)
	c.client("a", "main", "GPU-0")
	c.start("b", "main", "GPU-0")
	c.enforced("b", "runs without MPS", true)
	c.enforced("a", "runs without MPS", false)
}
