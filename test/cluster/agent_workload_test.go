package cluster_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

const (
	// measured is how long the load is measured, once it has run for a moment.
	measured = 10 * time.Second
	// tolerance is by how many percentage points the time of a share may differ from its quota.
	tolerance = 3
)

// loads are pods that keep one GPU busy: two with a fixed part of its time, and one that uses what they leave. Any two of them request
// more SMs than the GPU has.
var loads = []struct {
	name         string
	quota, limit int64
}{{"half", 50, 50}, {"third", 30, 30}, {"greedy", 10, 100}}

// TestAgentWorkload runs programs that keep a simulated GPU busy in real containers, with the real hook in front of the fake driver. It
// checks that each gets its quota, however much its neighbours try to use. As a control, the same measurement must show that without the
// hook they do not.
func TestAgentWorkload(t *testing.T) {
	driver := buildDriver(t)
	a := startWithAgents(t, cluster.Options{Nodes: 1, Images: []cluster.Image{workloadImage(t, driver)}}, twoGPUs)
	devices := startGPUs(t, a, driver, "GPU-0", "GPU-1")
	ctx := testContext(t)
	var pods, free []*v1.Pod
	for _, l := range loads {
		pod := cluster.Pod(l.name, spin(time.Millisecond, 60, "sync=64")...)
		pod.Spec.Containers[0].Image = workload
		pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("400m")}
		other := unhooked(a, pod.DeepCopy(), "GPU-1")
		other.Name += "-unhooked"
		pod.Annotations = map[string]string{kube.AnnotationQuotaLimit: fmt.Sprint(l.limit)}
		pods, free = append(pods, ask(pod, 60, l.quota, 1024)), append(free, other)
	}
	got := a.measure(ctx, t, devices, "GPU-0", pods)
	for i, l := range loads {
		if l.limit == l.quota && math.Abs(got[i]-float64(l.quota)) > tolerance || got[i] < float64(l.quota-tolerance) {
			t.Errorf("%s: quota %d%%: used %.1f%%", l.name, l.quota, got[i])
		}
	}
	a.takeOver(ctx, t, pods)
	a.clear(ctx, t)
	without := a.measure(ctx, t, devices, "GPU-1", free)
	if math.Abs(without[0]-float64(loads[0].quota)) <= tolerance {
		t.Errorf("without the hook %s used %.1f%%, too: the measurement shows nothing", loads[0].name, without[0])
	}
}

// measure runs the pods on a GPU and returns the percentage of its time that each has used.
func (a *agents) measure(ctx context.Context, t *testing.T, devices gpus, uuid string, pods []*v1.Pod) (got []float64) {
	t.Helper()
	a.create(ctx, t, pods...)
	for i, pod := range pods {
		pod, err := a.WaitPod(ctx, pod.Name, cluster.IsRunning)
		if err != nil {
			t.Fatal(err)
		}
		pods[i] = pod
		if p, present, _ := kube.PlacementOf(pod); present && p.Containers[0].VGPUs[0].Slice != uuid {
			t.Fatalf("%s is on %+v; all have to be on one GPU", pod.Name, p.Containers)
		}
	}
	clock := devices[uuid].Clock()
	for _, pod := range pods { // until all of them are working
		for devices.used(t, uuid, pod, 0, clock.Now()) == 0 {
			time.Sleep(50 * time.Millisecond)
		}
	}
	a.realTime(t, pods, unix.SCHED_RR)
	defer a.realTime(t, pods, unix.SCHED_NORMAL)
	from := clock.Now()
	time.Sleep(measured) // the measurement takes real time
	to := clock.Now()
	for _, pod := range pods {
		percent := devices.used(t, uuid, pod, from, to)
		t.Logf("%s used %.1f%%", pod.Name, percent)
		got = append(got, percent)
	}
	return got
}

// takeOver replaces the agent by another one, and checks that the programs keep running and are served again.
func (a *agents) takeOver(ctx context.Context, t *testing.T, pods []*v1.Pod) {
	t.Helper()
	agent := a.of[a.Nodes[0].Name]
	agent.Kill()
	agent.start(ctx, t)
	began := time.Now()
	for _, pod := range pods {
		agent.serves(ctx, t, pod)
	}
	t.Logf("served again %v after a new agent was ready", time.Since(began))
	for _, pod := range pods {
		pod, err := a.WaitPod(ctx, pod.Name, cluster.IsRunning)
		if err != nil || pod.Status.ContainerStatuses[0].RestartCount != 0 {
			t.Errorf("%s was started again (%v)", pod.Name, err)
		}
	}
}

// serves blocks until the token server has counted device time of the pod.
func (a *agent) serves(ctx context.Context, t *testing.T, pod *v1.Pod) {
	t.Helper()
	for busy, err := a.busy(ctx, pod.UID); busy == 0; busy, err = a.busy(ctx, pod.UID) {
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// busy returns the device time that the containers of a pod have used, as counted by the token server.
func (a *agent) busy(ctx context.Context, uid types.UID) (seconds float64, err error) {
	text, err := a.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	id := grant.Owner{UID: uid, Container: "main"}.ID()
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "gshare_share_busy_seconds_total") && strings.Contains(line, id) {
			return strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " "):]), 64)
		}
	}
	return 0, fmt.Errorf("nothing is counted for pod %s", uid)
}
