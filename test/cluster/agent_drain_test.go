package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/injection"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/test/cluster"
)

// working is a program that says when its work on the GPU ends, and when it is signalled, and then ends when both have happened. Its kernels take a
// minute each.
const working = `trap 'signalled=1; echo signalled >>/said/$0' TERM
"$@" & child=$!
while kill -0 $child; do wait $child; done
echo ended >>/said/$0
while [ -z "$signalled" ]; do sleep 1 & wait $!; done`

// TestAgentDrain: where a container's preStop hook runs gshare-drain, the container's CUDA work ends before SIGTERM, whoever has the kubelet stop
// the container, and a neighbour's work goes on. Without the hook, SIGTERM comes first.
func TestAgentDrain(t *testing.T) {
	a, said := startDraining(t)
	ctx := testContext(t)
	a.create(ctx, t, a.working("neighbour", said, true))
	a.runsAsPlaced(ctx, t, "neighbour")
	var grace int64 = 30
	remove := func(name string) error {
		return a.Client().CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
	}
	for _, test := range []struct {
		name string
		hook bool
		stop func(name string) error
	}{
		{"deleted", true, remove},
		{"evicted", true, func(name string) error {
			return a.Client().CoreV1().Pods("default").EvictV1(ctx, &policy.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}})
		}},
		{"forced", true, func(name string) error {
			var none int64
			return a.Client().CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &none})
		}},
		{"evicted-by-kubelet", true, func(name string) error { // it uses more disk than it may
			pod, err := a.Client().CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			_, err = a.Nodes[0].Exec(ctx, pod, "main", "sh", "-c", "head -c 8000000 /dev/zero >/scratch/file")
			return err
		}},
		{"not-live", true, func(name string) error { return os.WriteFile(filepath.Join(said, name+".sick"), nil, 0o644) }},
		{"without-hook", false, remove},
	} {
		t.Run(test.name, func(t *testing.T) {
			a.create(ctx, t, a.working(test.name, said, test.hook))
			pod := a.runsAsPlaced(ctx, t, test.name)
			a.waitWorking(ctx, t, pod)
			if err := test.stop(test.name); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(said, test.name)
			if !test.hook {
				if got := waitSaid(ctx, t, file, "signalled"); got != "signalled" {
					t.Errorf("without the hook: %q", got)
				}
				return
			}
			waitSaid(ctx, t, file, "signalled")
			waitSaid(ctx, t, file, "ended")
			_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
			drained := a.logged(ctx, t, "gshare-node", "ended the CUDA work", id)
			if stopped := a.logged(ctx, t, "containerd", "with signal", id); !drained.Before(stopped) {
				t.Errorf("the work was ended at %v, and the container signalled at %v", drained, stopped)
			}
		})
	}
	if text, err := os.ReadFile(filepath.Join(said, "neighbour")); err == nil {
		t.Errorf("the neighbour says %q", text)
	}
}

// startDraining starts a node whose agent has the fake MPS. It also returns a folder of the host.
func startDraining(t *testing.T) (a *agents, said string) {
	t.Helper()
	t.Cleanup(func() { _ = cgroup.Detached{Mount: "/sys/fs/cgroup", Name: "gshare-mps"}.Remove() }) // of daemons, which outlive the agent
	driver := buildDriver(t)
	a = startWithAgents(t, cluster.Options{
		Nodes: 1, Images: []cluster.Image{workloadImage(t, driver)},
		KubeletConfig: map[string]any{"volumeStatsAggPeriod": "1s"}, // how soon it notices that a volume is too large
	}, oneGPU)
	a.gpus = startGPUs(t, a, driver, "GPU-0")
	said = filepath.Join(a.Dir, "said")
	if err := os.Mkdir(said, 0o755); err != nil {
		t.Fatal(err)
	}
	agent := a.of[a.Nodes[0].Name]
	file := agent.program.Args[1]
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	mps := "\nsimulatedMPS: " + filepath.Join(a.Dir, "fake/nvidia-cuda-mps-control") + "\nkubernetes:\n"
	if err := os.WriteFile(file, []byte(strings.Replace(string(text), "\nkubernetes:\n", mps, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	agent.Kill()
	agent.start(testContext(t), t)
	agent.waitProxy(testContext(t), t)
	return a, said
}

// working returns a pod with long kernels on a share of class mps. It has all the time of its SMs, so its kernels wait for nobody.
func (a *agents) working(name, said string, hook bool) *v1.Pod {
	pod := ask(cluster.Pod(name, slices.Concat([]string{"sh", "-c", working, name}, spin(time.Minute, 10, "sync=1"))...), 10, 100, 1024)
	grace := int64(30)
	pod.Spec.TerminationGracePeriodSeconds = &grace
	limit := resource.MustParse("1Mi")
	pod.Spec.Volumes = []v1.Volume{
		{Name: "said", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: said}}},
		{Name: "scratch", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{SizeLimit: &limit}}},
	}
	c := &pod.Spec.Containers[0]
	c.Image = workload
	c.VolumeMounts = []v1.VolumeMount{{Name: "said", MountPath: "/said"}, {Name: "scratch", MountPath: "/scratch"}}
	c.LivenessProbe = &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"test", "!", "-e", "/said/" + name + ".sick"}}},
		PeriodSeconds: 1, FailureThreshold: 1, TimeoutSeconds: 30,
	}
	if hook {
		c.Lifecycle = &v1.Lifecycle{PreStop: &v1.LifecycleHandler{Exec: &v1.ExecAction{
			Command: []string{injection.DrainDir + "/" + injection.DrainProgram},
		}}}
	}
	return pod
}

// waitWorking waits until the pod's program is in its first kernel. The simulation tells of kernels when they have ended.
func (a *agents) waitWorking(ctx context.Context, t *testing.T, pod *v1.Pod) {
	t.Helper()
	var since time.Time
	err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(context.Context) (bool, error) {
		for _, pid := range pidsOf(t, pod) {
			if since.IsZero() && process.Program(pid) == "spin" {
				since = time.Now()
			}
		}
		return !since.IsZero() && time.Since(since) > 2*time.Second, nil // it launches a kernel at once
	})
	if err != nil {
		t.Fatalf("%s does not work: %v", pod.Name, err)
	}
}

// logged returns the time of a message about a container in the log of a program of the node.
func (a *agents) logged(ctx context.Context, t *testing.T, program, message, id string) (at time.Time) {
	t.Helper()
	file := filepath.Join(a.Dir, "logs", a.Nodes[0].Name+"-"+program+".log")
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 10*time.Second, true, func(context.Context) (bool, error) {
		for line := range strings.Lines(read(t, file)) {
			if strings.Contains(line, message) && strings.Contains(line, id) {
				text, _, _ := strings.Cut(line[strings.Index(line, "time=")+len("time="):], " ")
				var err error
				at, err = time.Parse(time.RFC3339Nano, strings.Trim(text, `"`))
				return err == nil, err
			}
		}
		return false, nil
	})
	if err != nil {
		t.Fatalf("%s has not logged %q of %s: %v", program, message, id, err)
	}
	return at
}

// waitSaid waits until a program has said something, and returns all that it has said.
func waitSaid(ctx context.Context, t *testing.T, file, what string) (said string) {
	t.Helper()
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		text, _ := os.ReadFile(file)
		said = strings.Join(strings.Fields(string(text)), " ")
		return strings.Contains(said, what), nil
	})
	if err != nil {
		t.Fatal(fmt.Errorf("%w: %q", err, said))
	}
	return said
}
