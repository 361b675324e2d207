package agent

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/test/executable"
	fakestore "github.com/gshare-dev/gshare/test/fake/store"
	"github.com/gshare-dev/gshare/test/tokenclient"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const tokensVariable = "GSHARE_TEST_TOKENS"

// TestMain also makes the test binary an agent that is killed, or the program of a container, which opens a session in each directory
// that it reads from its input, and counts memory as the hook does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "store" { // also of an agent that kills itself
		fmt.Fprintln(os.Stderr, fakestore.Run(os.Args[2:]))
		os.Exit(1)
	}
	if dir := os.Getenv(crashDir); dir != "" {
		fmt.Fprintln(os.Stderr, runCrashing(dir, os.Getenv(crashStep)))
		os.Exit(1)
	}
	if os.Getenv(tokensVariable) == "" {
		flag.Parse()
		if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
			_ = f.Value.Set("8") // tests of agents mostly wait
		}
		os.Exit(m.Run())
	}
	input := bufio.NewReader(os.Stdin)
	var sessions []*tokenclient.Client // kept open
	for {
		line, err := input.ReadString('\n')
		if err != nil {
			os.Exit(len(sessions))
		}
		if pipe, ok := strings.CutPrefix(line, "mps "); ok {
			becomeClient(strings.TrimSpace(pipe))
			continue
		}
		if file, ok := strings.CutPrefix(line, "map "); ok {
			mapFile(strings.TrimSpace(file))
		} else if bytes, ok := strings.CutPrefix(line, "charge "); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(bytes), 10, 64)
			v := sessions[0].VGPUs[0]
			v.Container.Memory.Add(n)
			v.Client.Memory.Add(n)
		} else if dir := strings.TrimSpace(line); dir != "" {
			session, err := tokenclient.Dial(dir, 0)
			if err != nil {
				fmt.Println(err)
				os.Exit(1)
			}
			sessions = append(sessions, session)
		}
		fmt.Println("ready")
	}
}

// mapFile maps a file until the process ends.
func mapFile(name string) {
	file, err := os.Open(name)
	if err == nil {
		_, err = syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_PRIVATE)
	}
	if err != nil {
		fmt.Println(err)
	}
}

// program is a process in a container, or in none.
type program struct {
	*exec.Cmd
	t     *testing.T
	input interface{ Write([]byte) (int, error) }
	lines *bufio.Reader

	ended  chan struct{} // closed at its end
	status syscall.WaitStatus
}

// connect makes the program open a session in a directory; with an empty one it only answers.
func (p *program) connect(dir string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.input, dir); err != nil {
		p.t.Fatal(err)
	}
	if line, err := p.lines.ReadString('\n'); err != nil || line != "ready\n" {
		p.t.Fatalf("the program answers %q, %v", line, err)
	}
}

// charge makes the program count device memory as the hook does.
func (p *program) charge(memory share.Bytes) {
	p.t.Helper()
	p.connect(fmt.Sprint("charge ", int64(memory)))
}

func (p *program) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// waitKilled blocks until the process has ended, which must be by SIGKILL.
func (p *program) waitKilled() {
	p.t.Helper()
	select {
	case <-p.ended:
		if p.status.Signal() != syscall.SIGKILL {
			p.t.Errorf("process %d ended with %v, not by SIGKILL", p.Process.Pid, p.status)
		}
	case <-time.After(time.Minute):
		p.t.Fatalf("process %d was not killed", p.Process.Pid)
	}
}

// processFixture is a fixture with processes in containers and on slices. It is also the driver that lists them.
type processFixture struct {
	gpu.Simulated
	fixture *fixture
	hung    chan struct{} // nil, or closed when the driver answers again

	mu         sync.Mutex // guards the following
	containers map[int]cgroup.Container
	on         []gpu.Process
	lists      atomic.Int64 // that the driver has answered
}

// Processes implements gpu.Source.
func (c *processFixture) Processes() ([]gpu.Process, error) {
	if c.hung != nil {
		<-c.hung
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lists.Add(1)
	return append([]gpu.Process(nil), c.on...), nil
}

func (c *processFixture) containerOf(pid int) (cgroup.Container, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if in, ok := c.containers[pid]; ok {
		return in, nil
	}
	return cgroup.Container{}, cgroup.ErrNoContainer
}

// start runs a program in a container that uses a slice.
func (c *processFixture) start(pod, container, slice string) *program {
	c.fixture.t.Helper()
	p := launch(c.fixture.t, exec.Command(os.Args[0]))
	p.connect("") // it runs
	c.put(p, pod, container)
	c.use(p, slice)
	return p
}

func launch(t *testing.T, cmd *exec.Cmd) *program {
	t.Helper()
	cmd.Env = append(cmd.Environ(), tokensVariable+"=1")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := executable.Start(cmd); err != nil {
		t.Fatal(err)
	}
	p := &program{Cmd: cmd, t: t, input: input, lines: bufio.NewReader(output), ended: make(chan struct{})}
	go func() {
		state, err := cmd.Process.Wait() // not Cmd.Wait, which would close the output under who reads it
		if err == nil {
			p.status = state.Sys().(syscall.WaitStatus)
		}
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
	})
	return p
}

// put assigns a program to a container of a pod; to none where the pod has no name.
func (c *processFixture) put(p *program, pod, container string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if pod != "" {
		c.containers[p.Process.Pid] = cgroup.Container{PodUID: pod, ID: pod + "-" + container}
	}
}

func (c *processFixture) use(p *program, slice string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = append(c.on, gpu.Process{PID: p.Process.Pid, Slice: slice})
}

// hold sets the device memory that the driver counts for a program.
func (c *processFixture) hold(p *program, memory share.Bytes) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.on {
		if c.on[i].PID == p.Process.Pid {
			c.on[i].Memory = memory
		}
	}
}

// leave ends the use of the slices by all programs.
func (c *processFixture) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = nil
}

// wait blocks until the driver has listed the processes that many times more.
func (c *processFixture) wait(looks int64) {
	c.fixture.t.Helper()
	until := c.lists.Load() + looks
	c.fixture.wait("observations", func() bool { return c.lists.Load() >= until })
}

// newProcessFixture returns a fixture whose agent observes processes ten times a second, with a policy for strangers.
func newProcessFixture(t *testing.T, policy string, options ...func(*Options)) *processFixture {
	t.Helper()
	c := &processFixture{containers: map[int]cgroup.Container{}}
	c.fixture = newFixture(t, append([]func(*Options){func(o *Options) {
		k := &o.Config.Kubernetes
		k.UnmanagedProcesses, k.WatchPeriod, k.HookGrace = policy, metav1.Duration{Duration: 100 * time.Millisecond}, metav1.Duration{Duration: time.Second}
		if c.File == "" { // an agent that was killed may still be asking
			c.Simulated = o.Source.(gpu.Simulated)
		}
		o.Source, o.ContainerOf = c, c.containerOf
	}}, options...)...)
	return c
}

// plain adds a running pod without a share.
func (c *processFixture) plain(uid string, containers ...string) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "default", Name: "pod-" + uid}}
	for _, name := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: name})
	}
	c.fixture.kubelet.AddPod(running(pod))
}

// running sets the container IDs of a pod, as the start of its containers does, and returns it.
func running(pod *v1.Pod) *v1.Pod {
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, v1.ContainerStatus{
			Name: container.Name, ContainerID: "containerd://" + string(pod.UID) + "-" + container.Name,
		})
	}
	return pod
}

// granted adds a running pod with a share of a slice.
func (c *processFixture) granted(uid, slice string, sm, quota int64) {
	c.fixture.t.Helper()
	c.fixture.mustCreate(uid, c.fixture.pod(uid, slice, sm, quota), slice)
	c.fixture.kubelet.AddPod(running(placed(uid, slice, sm, quota)))
}

// directory returns the directory with the token server's socket for a pod's container.
func (r *fixture) directory(pod string) string {
	for _, g := range r.granter.grants.all() {
		if g.Name == pod {
			return r.granter.containerDir(g.ID())
		}
	}
	return ""
}

func (c *processFixture) offered(slice string) bool {
	c.fixture.cluster.mu.Lock()
	defer c.fixture.cluster.mu.Unlock()
	inv, err := kube.DecodeInventory(c.fixture.cluster.inventory)
	if err != nil {
		c.fixture.t.Fatal(err)
	}
	for _, s := range inv.Slices {
		if s.ID == slice {
			return s.Healthy
		}
	}
	return false
}

// enforced blocks until the enforcement status of a pod contains a text, or does not.
func (c *processFixture) enforced(uid, part string, says bool) {
	c.fixture.t.Helper()
	c.fixture.wait("enforcement status with "+part, func() bool {
		c.fixture.cluster.mu.Lock()
		defer c.fixture.cluster.mu.Unlock()
		text := c.fixture.cluster.enforced[types.UID(uid)]
		return text != "" && strings.Contains(text, part) == says
	})
}

var policies = []string{config.IgnoreUnmanaged, config.ReportUnmanaged, config.EndUnmanaged}
