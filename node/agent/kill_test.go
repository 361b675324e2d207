package agent

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/kubelet"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/node/partition/ondemand"
	fakekubelet "github.com/gshare-dev/gshare/test/fake/kubelet"
	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// The environment of an agent that kills itself: the node's directory, and the step, before or after which it does so. Steps are those on
// the GPU, which is in MIG mode and outlives the process, writes of the journal, and steps of a grant.
const (
	crashDir  = "GSHARE_TEST_CRASH_DIR"
	crashStep = "GSHARE_TEST_CRASH_STEP" // counted from 0; -1: never
)

// crashingGPU is a GPU and a journal that count their steps and kill the process at one.
type crashingGPU struct {
	*fakemig.GPU
	partition.File
	mu   sync.Mutex // guards left
	left int        // steps before the last one
}

func (m *crashingGPU) pass() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 {
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
		select {} // the signal is on its way: nothing more is done
	}
	m.left--
}

func (m *crashingGPU) Apply(s geometry.Step) error {
	m.pass()
	defer m.pass()
	return m.GPU.Apply(s)
}

func (m *crashingGPU) Save(text []byte) error {
	m.pass()
	defer m.pass()
	return m.File.Save(text)
}

func runCrashing(dir, at string) error {
	m := &crashingGPU{File: partition.File(filepath.Join(dir, "mig.json"))}
	if _, err := fmt.Sscan(at, &m.left); err != nil {
		return err
	}
	model, err := mig.ModelNamed("A100-80GB")
	if err != nil {
		return err
	}
	if m.GPU, err = fakemig.Stored("GPU-a", model, filepath.Join(dir, "acts")); err != nil {
		return err
	}
	source := ondemand.New(partitioned{m.GPU}, []ondemand.GPU{{
		UUID: "GPU-a", Profiles: []string{"1g.10gb", "3g.40gb"}, Open: func() (*partition.Manager, *mig.Model, error) {
			manager, err := partition.Open(partition.Config{Device: m, UUID: "GPU-a", BootID: "b", Store: m})
			return manager, model, err
		},
	}})
	k := fakekubelet.New(dir, string(kube.ResourceVGPU)) // for the names of its sockets
	pods, err := kubelet.DialPods(k.Pods())
	if err != nil {
		return err
	}
	records, err := kubelet.DialRecords(k.PodResources(), pods)
	if err != nil {
		return err
	}
	killPoint = func(string) { m.pass() }
	c := config.Configuration{Directory: dir, ContextReserveMiB: new(int64(0)), Kubernetes: config.Kubernetes{
		NodeName: "n", DevicePlugins: k.DevicePlugins(), CDI: filepath.Join(dir, "cdi"), UnmanagedProcesses: config.IgnoreUnmanaged,
	}}
	claims := os.Getenv(crashClaims) != ""
	if claims {
		c.Tenancy, c.Kubernetes.ResourceClaims = "mixed", []string{"GPU-a"}
	}
	o := Options{
		Config: c.WithDefaults(),
		Source: source, OnDemand: source, MPS: mps.Daemons{Simulated: true}, Pods: pods, Records: records,
		Cluster: &cluster{enforced: map[types.UID]string{}}, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	if os.Getenv(crashStores) != "" {
		withStores(&o)
	}
	a, err := New(o)
	if err != nil {
		return err
	}
	if claims {
		go a.serveWanted(context.Background(), dir)
	}
	return a.Run(context.Background())
}

// crashNode is a node whose agents crash and are restarted.
type crashNode struct {
	ctx     context.Context
	dir     string
	kubelet *fakekubelet.Kubelet
	claims  bool // pods get their shares by resource claims
	stores  bool // pods declare weights
	agent   *exec.Cmd
	ended   chan struct{} // closed when that agent has
	deaths  int
}

func newCrashNode(ctx context.Context, at int, claims, stores bool) (*crashNode, error) {
	dir, err := os.MkdirTemp("", "gk") // short enough for a socket
	if err != nil {
		return nil, err
	}
	l := &crashNode{ctx: ctx, dir: dir, claims: claims, stores: stores, kubelet: fakekubelet.New(dir, string(kube.ResourceVGPU))}
	return l, errors.Join(l.kubelet.Start(), l.start(at))
}

func (l *crashNode) close() {
	l.kill()
	l.kubelet.Kill()
	os.RemoveAll(l.dir)
}

func (l *crashNode) kill() {
	_ = l.agent.Process.Kill()
	<-l.ended
}

// start starts the next agent, which is killed at a step.
func (l *crashNode) start(at int) error {
	log, err := os.OpenFile(filepath.Join(l.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	agent, ended := exec.Command(os.Args[0]), make(chan struct{})
	agent.Env = append(os.Environ(), crashDir+"="+l.dir, fmt.Sprintf("%s=%d", crashStep, at))
	if l.claims {
		agent.Env = append(agent.Env, crashClaims+"=1")
	}
	if l.stores {
		agent.Env = append(agent.Env, crashStores+"=1")
	}
	agent.Stderr = log
	if err := agent.Start(); err != nil {
		return err
	}
	go func() {
		_ = agent.Wait()
		close(ended)
	}()
	l.agent, l.ended = agent, ended
	return nil
}

// until repeats a call until it succeeds, as the kubelet does, and starts the next agent when one has ended.
func (l *crashNode) until(what string, done func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	for !done(ctx) {
		select {
		case <-l.ended:
			l.deaths++
			if err := l.start(-1); err != nil {
				return err
			}
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(l.dir, "log"))
			return fmt.Errorf("no %s:\n%s", what, log)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// begin adds a pod that is placed on a slice, and starts its container.
func (l *crashNode) begin(uid, slice string) error {
	if l.claims {
		return l.beginClaim(uid, slice)
	}
	pod := placed(uid, slice, 100, 100)
	if l.stores {
		pod = declaring(pod)
	}
	l.kubelet.AddPod(pod)
	device := ""
	admitted := l.until("admission of "+uid, func(ctx context.Context) (ok bool) {
		if len(l.kubelet.Devices()) == 0 {
			return false
		}
		var err error
		device, err = l.kubelet.Admit(ctx, types.UID(uid), "main", 1)
		return err == nil
	})
	return errors.Join(admitted, l.until("start of "+uid, func(ctx context.Context) bool {
		if l.kubelet.Create(ctx, types.UID(uid), "main") != nil {
			return false
		}
		return l.hasInstance(device)
	}))
}

// hasInstance reports whether the CDI file of a container names a MIG instance.
func (l *crashNode) hasInstance(device string) bool {
	spec, err := os.ReadFile(filepath.Join(l.dir, "cdi", "gshare.dev-grant-"+strings.TrimPrefix(device, "gshare.dev/grant=")+".json"))
	return err == nil && strings.Contains(string(spec), "CUDA_VISIBLE_DEVICES=MIG-GPU-a-")
}

// end removes a pod, and blocks until that many grants are left on disk.
func (l *crashNode) end(uid string, left int) error {
	if l.claims {
		if err := l.endClaim(uid); err != nil {
			return err
		}
	}
	l.kubelet.RemovePod(types.UID(uid))
	return l.until("end of "+uid, func(context.Context) bool {
		grants, err := os.ReadDir(filepath.Join(l.dir, "grants"))
		return err == nil && len(grants) == left
	})
}

// play starts and ends pods: one stays; the instance of each other is removed for that of the next.
func (l *crashNode) play() error {
	for _, step := range []func() error{
		func() error { return l.begin("stays", "a.c1m1.0") },
		func() error { return l.begin("first", "a.c3m4.4") },
		func() error { return l.end("first", 1) },
		func() error { return l.begin("second", "a.c1m1.5") },
		func() error { return l.end("second", 1) },
		func() error { return l.begin("third", "a.c3m4.4") },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	l.kill()
	return l.leaks()
}

// leaks returns an error unless the GPU's instances, and the journal's record of them, are those of the pods.
func (l *crashNode) leaks() error {
	model, err := mig.ModelNamed("A100-80GB")
	if err != nil {
		return err
	}
	g, err := fakemig.Stored("GPU-a", model, filepath.Join(l.dir, "acts"))
	if err != nil {
		return err
	}
	var acts []string
	for _, s := range g.Steps() {
		acts = append(acts, s.String())
	}
	want := slices.Concat(made("1g.10gb", 0), made("3g.40gb", 4), removed("3g.40gb", 4), made("1g.10gb", 5), removed("1g.10gb", 5), made("3g.40gb", 4))
	if !slices.Equal(acts, want) {
		return fmt.Errorf("steps on the GPU: %q, want %q", acts, want)
	}
	m, err := partition.Open(partition.Config{Device: g, UUID: "GPU-a", BootID: "b", Store: partition.File(filepath.Join(l.dir, "mig.json"))})
	if err != nil {
		return err
	}
	if _, others, err := m.Instances(); err != nil || len(others) > 0 {
		return fmt.Errorf("the journal lacks %v, %v", others, err)
	}
	return nil
}

func made(profile string, start int) []string {
	return []string{fmt.Sprintf("create GPU instance %s at %d", profile, start), fmt.Sprintf("create compute instance %s at %d", profile, start)}
}

func removed(profile string, start int) []string {
	return []string{fmt.Sprintf("destroy compute instance %s at %d", profile, start), fmt.Sprintf("destroy GPU instance %s at %d", profile, start)}
}

var full = flag.Bool("full", false, "kill the agent at every step, not at some")

// TestKilledBetweenSteps kills the agent between two steps on the GPU, of the journal or of a grant: the next agent adopts or rolls back,
// the pods get what they were promised, no step is lost or repeated, and no state is left over.
func TestKilledBetweenSteps(t *testing.T) {
	t.Parallel()
	stride := 11 // a step on the GPU has six kill points
	if *full {
		stride = 1
	}
	killBetweenSteps(t, stride, 72, func(at int) (int, error) { return playKilledAt(t.Context(), at, false) }) // twelve steps on the GPU have 72
}

// killBetweenSteps plays with agents that are killed, each at a step that many after that of the last one. There are at least so many steps.
func killBetweenSteps(t *testing.T, stride, steps int, play func(at int) (deaths int, err error)) {
	t.Helper()
	const workers = 8 // which mostly wait
	var killed atomic.Int64
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for at := worker * stride; ; at += workers * stride {
				deaths, err := play(at)
				if err != nil {
					t.Errorf("killed at step %d: %v", at, err)
					return
				}
				if deaths == 0 {
					return // the agent was not killed: there are no more steps
				}
				killed.Add(1)
			}
		})
	}
	all.Wait()
	t.Logf("killed at %d steps", killed.Load())
	if int(killed.Load())*stride < steps {
		t.Errorf("killed at %d steps, want each %d of %d", killed.Load(), stride, steps)
	}
}

func playKilledAt(ctx context.Context, at int, claims bool) (deaths int, err error) {
	l, err := newCrashNode(ctx, at, claims, false)
	if err != nil {
		return 0, err
	}
	defer l.close()
	err = l.play()
	return l.deaths, err
}
