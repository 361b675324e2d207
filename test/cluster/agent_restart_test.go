package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

const eightGPUs = `devices:
- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920}
- {uuid: GPU-1, model: A100, sms: 108, memoryMiB: 81920}
- {uuid: GPU-2, model: A100, sms: 108, memoryMiB: 81920}
- {uuid: GPU-3, model: A100, sms: 108, memoryMiB: 81920}
- {uuid: GPU-4, model: A100, sms: 108, memoryMiB: 81920}
- {uuid: GPU-5, model: A100, sms: 108, memoryMiB: 81920}
- {uuid: GPU-6, model: A100, sms: 108, memoryMiB: 81920}
- {uuid: GPU-7, model: A100, sms: 108, memoryMiB: 81920}
`

// The load during a restart: pods that compute, and a burst of pods that arrive before and while the program is away.
const (
	residents = 4
	arriving  = 20
)

// stuck is the longest time without a further pod of a burst starting to run while some are still waiting.
const stuck = 30 * time.Second

// startLoaded starts a cluster with one node whose pods compute on simulated GPUs.
func startLoaded(t *testing.T) (*agents, *cluster.Node) {
	t.Helper()
	driver := buildDriver(t)
	a := startWithAgents(t, cluster.Options{Nodes: 1, Images: []cluster.Image{workloadImage(t, driver)}}, eightGPUs)
	var uuids []string
	for i := range 8 {
		uuids = append(uuids, fmt.Sprintf("GPU-%d", i))
	}
	a.gpus = startGPUs(t, a, driver, uuids...)
	return a, a.Nodes[0]
}

// TestAgentRestarts kills each program of a node and of the control plane while pods compute and others are created. Running pods must not
// be disturbed, new ones must get their own shares, and all records must agree in the end.
func TestAgentRestarts(t *testing.T) {
	a, node := startLoaded(t)
	kill := func(p func() *machine.Process) func(context.Context, *testing.T) {
		return func(ctx context.Context, t *testing.T) {
			p().Kill()
			if err := p().Restart(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, test := range []struct {
		name string
		end  func(context.Context, *testing.T)
	}{
		{"agent", kill(func() *machine.Process { return a.of[node.Name].Process })},
		{"kubelet", kill(func() *machine.Process { return node.Kubelet })},
		{"containerd", kill(func() *machine.Process { return node.Containerd })},
		{"scheduler", kill(func() *machine.Process { return a.Scheduler })},
		{"API server", kill(func() *machine.Process { return a.APIServer })},
		{"etcd", kill(func() *machine.Process { return a.Etcd })},
		{"agent and kubelet", func(ctx context.Context, t *testing.T) {
			node.Kubelet.Kill()
			a.of[node.Name].Kill()
			if err := node.Kubelet.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			a.of[node.Name].start(ctx, t)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx := testContext(t)
			before := a.load(ctx, t, node)
			a.arrive(ctx, t, node, 0, arriving/2)
			began := time.Now()
			test.end(ctx, t)
			back := time.Since(began)
			a.arrive(ctx, t, node, arriving/2, arriving)
			failed := a.settle(ctx, t, node, before)
			t.Logf("back after %v, all run after %v; the kubelet failed %d of %d pods that were bound", back, time.Since(began), failed, arriving)
			a.clear(ctx, t)
		})
	}
}

// TestAgentFaults makes the agent end between any two steps of its protocol, during a burst.
func TestAgentFaults(t *testing.T) {
	a, node := startLoaded(t)
	agent := a.of[node.Name]
	for _, point := range []string{"allocate:2", "recorded:1", "recorded:6", "served:5", "granted:5", "granted:6", "ungranted:1", "ungranted:3", "unserved:2"} {
		passed := t.Run(point, func(t *testing.T) {
			ctx := testContext(t)
			before := a.load(ctx, t, node)
			agent.Kill()
			agent.startFaulty(ctx, t, point)
			a.arrive(ctx, t, node, 0, arriving)
			a.leave(ctx, t, before) // so that the agent also takes the steps of a release
			select {
			case <-agent.Done():
			case <-ctx.Done():
				t.Fatal("the agent has not come to the point")
			}
			agent.start(ctx, t)
			began := time.Now()
			failed := a.settle(ctx, t, node, nil)
			t.Logf("all run %v after the restart; the kubelet failed %d pods", time.Since(began), failed)
			a.clear(ctx, t)
		})
		if !passed {
			return // what it has left would make the others fail too
		}
	}
}

func resident(i int) string { return fmt.Sprintf("resident-%d", i) }
func arrival(i int) string  { return fmt.Sprintf("arrival-%d", i) }

// load starts the resident pods and checks them from inside.
func (a *agents) load(ctx context.Context, t *testing.T, node *cluster.Node) (pods []*v1.Pod) {
	t.Helper()
	for i := range residents {
		pod := ask(cluster.Pod(resident(i), spin(time.Millisecond, 40, "sync=2", "pause=20000000")...), 40, 50, 4096)
		pod.Spec.Containers[0].Image = workload
		a.create(ctx, t, on(pod, node))
	}
	for i := range residents {
		pods = append(pods, a.runsAsPlaced(ctx, t, resident(i)))
	}
	return pods
}

// arrive creates pods without waiting for them.
func (a *agents) arrive(ctx context.Context, t *testing.T, node *cluster.Node, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		pod := on(ask(cluster.Pod(arrival(i), "sleep", "inf"), 30, 40, 2048), node)
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			_, err := a.Client().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
			return err == nil, nil // the API server may be down
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// leave deletes the pods.
func (a *agents) leave(ctx context.Context, t *testing.T, pods []*v1.Pod) {
	for _, pod := range pods {
		if err := a.Client().CoreV1().Pods("default").Delete(ctx, pod.Name, metav1.DeleteOptions{}); err != nil && ctx.Err() == nil {
			t.Errorf("delete %s: %v", pod.Name, err)
		}
	}
}

// settle waits until all arriving pods run, and checks them from inside. It recreates pods that the kubelet failed because no plugin was
// registered, as a controller would, and returns their number. The pods in before must run unchanged.
func (a *agents) settle(ctx context.Context, t *testing.T, node *cluster.Node, before []*v1.Pod) (failed int) {
	t.Helper()
	a.progress(ctx, t)
	for i := range arriving {
		pod, err := a.WaitPod(ctx, arrival(i), func(p *v1.Pod) bool { return cluster.IsRunning(p) || p.Status.Phase == v1.PodFailed })
		if err != nil {
			t.Fatal(err)
		}
		if pod.Status.Phase == v1.PodFailed {
			t.Logf("%s: %s: %s", pod.Name, pod.Status.Reason, pod.Status.Message)
			failed++
			a.leave(ctx, t, []*v1.Pod{pod})
			if err := a.waitEnded(ctx, "-"); err != nil {
				t.Fatal(err)
			}
			a.arrive(ctx, t, node, i, i+1)
		}
		a.runsAsPlaced(ctx, t, arrival(i))
	}
	for _, was := range before {
		is, err := a.WaitPod(ctx, was.Name, cluster.IsRunning)
		if err != nil {
			t.Fatal(err)
		}
		if is.Status.ContainerStatuses[0].ContainerID != was.Status.ContainerStatuses[0].ContainerID || is.UID != was.UID {
			t.Errorf("%s has been started again", was.Name)
		}
		if err := a.checkInside(ctx, is); err != nil {
			t.Error(err)
		}
		a.computes(ctx, t, is)
	}
	a.waitBooks(ctx, t, node)
	return failed
}

// progress waits until every pod of the burst has started or failed, and reports an error if nothing changes for too long.
func (a *agents) progress(ctx context.Context, t *testing.T) {
	t.Helper()
	settled, since := 0, time.Now()
	for settled < arriving && ctx.Err() == nil {
		time.Sleep(100 * time.Millisecond) // between polls
		pods, err := a.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			continue // the API server may be down
		}
		now := 0
		for _, pod := range pods.Items {
			if strings.HasPrefix(pod.Name, "arrival") && (cluster.IsRunning(&pod) || pod.Status.Phase == v1.PodFailed) {
				now++
			}
		}
		if now > settled {
			settled, since = now, time.Now()
		}
		if time.Since(since) > stuck {
			t.Errorf("%d of %d pods run, and none more for %v", settled, arriving, stuck)
			return
		}
	}
}

// computes waits until the device has run a kernel of the pod that started after the call.
func (a *agents) computes(ctx context.Context, t *testing.T, pod *v1.Pod) {
	t.Helper()
	slice := sliceOf(t, pod)
	clock := a.gpus[slice].Clock()
	for from := clock.Now(); a.gpus.used(t, slice, pod, from, clock.Now()) == 0; {
		if ctx.Err() != nil {
			t.Fatalf("%s computes no more", pod.Name)
		}
		time.Sleep(50 * time.Millisecond) // between polls
	}
}

// sliceOf returns the slice on which the pod's only vGPU is placed.
func sliceOf(t *testing.T, pod *v1.Pod) string {
	t.Helper()
	placement, _, err := kube.PlacementOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	return placement.Containers[0].VGPUs[0].Slice
}

// TestAgentReboot reboots the node. Pods must either come back with their own shares, or be failed by the kubelet if it starts them before
// the plugin has registered. Nothing from before the reboot may remain.
func TestAgentReboot(t *testing.T) {
	a, node := startLoaded(t)
	ctx := testContext(t)
	before := a.load(ctx, t, node)
	a.arrive(ctx, t, node, 0, arriving)
	agent := a.of[node.Name]
	agent.Kill()
	began := time.Now()
	down, started := node.Containerd.Done(), make(chan error, 1)
	go func() { // like a service that is started before the kubelet
		<-down
		err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
			return node.Containerd.Done() != down, nil // both containerd and the machine have been started again
		})
		if err == nil {
			program := agent.program
			program.Ready = nil
			agent.Process, err = node.Machine.Start(ctx, program)
		}
		started <- err
	}()
	if err := node.Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, was := range before {
		pod, err := a.WaitPod(ctx, was.Name, func(p *v1.Pod) bool {
			again := cluster.IsRunning(p) && p.Status.ContainerStatuses[0].ContainerID != was.Status.ContainerStatuses[0].ContainerID
			return again || p.Status.Phase == v1.PodFailed
		})
		if err != nil {
			t.Fatal(err)
		}
		if pod.Status.Phase == v1.PodFailed {
			failed++
			t.Logf("%s: %s: %s", pod.Name, pod.Status.Reason, pod.Status.Message)
			continue
		}
		if err := a.checkInside(ctx, pod); err != nil {
			t.Error(err)
		}
		a.computes(ctx, t, pod)
	}
	lost := a.settle(ctx, t, node, nil)
	a.waitInventory(ctx, t, node)
	t.Logf("all settled after %v; the kubelet failed %d of %d that ran and %d of %d that came", time.Since(began), failed, residents, lost, arriving)
	a.clear(ctx, t)
}
