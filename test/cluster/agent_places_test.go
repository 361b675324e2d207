package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// TestAgent checks that pods get the shares that were placed on their node, and that pods without a valid placement are refused.
func TestAgent(t *testing.T) {
	a := startWithAgents(t, cluster.Options{}, twoGPUs)
	for _, test := range []struct {
		name string
		run  func(context.Context, *testing.T, *agents)
	}{
		{"mixed", testMixed}, {"rectangles", testRectangles}, {"several containers", testContainers}, {"two GPUs in parts", testTwoGPUsInParts}, {"whole GPUs", testWhole}, {"twins", testTwins}, {"bypass", testBypass}, {"unsafe", testUnsafe}, {"restart of a container", testContainerRestart},
		{"given back", testGivenBack}, {"health", testHealth}, {"zeroed capacity", testZeroed}, {"residency", testResidency}, {"policies", testPolicies}, {"forged", testForged},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx := testContext(t)
			test.run(ctx, t, a)
			a.clear(ctx, t)
		})
	}
}

// testMixed creates pods with different shares, and checks inside each that it has its own share.
func testMixed(ctx context.Context, t *testing.T, a *agents) {
	began := time.Now()
	shapes := []struct{ sm, quota, mem int64 }{{50, 60, 8192}, {50, 60, 8192}, {24, 40, 4096}, {10, 100, 1024}, {30, 90, 2048}, {5, 10, 512}}
	for i, s := range shapes {
		a.create(ctx, t, ask(cluster.Pod(fmt.Sprintf("mixed-%d", i), "sleep", "inf"), s.sm, s.quota, s.mem))
	}
	for i := range shapes {
		a.runsAsPlaced(ctx, t, fmt.Sprintf("mixed-%d", i))
	}
	t.Logf("%d pods in %v", len(shapes), time.Since(began))
	for _, node := range a.Nodes {
		a.waitBooks(ctx, t, node)
	}
}

// runsAsPlaced waits until a pod runs with its share and has an enforcement status, and checks the share inside the pod.
func (a *agents) runsAsPlaced(ctx context.Context, t *testing.T, name string) *v1.Pod {
	t.Helper()
	pod, err := a.WaitPod(ctx, name, cluster.IsRunning)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.checkInside(ctx, pod); err != nil {
		t.Error(err)
	}
	pod, err = a.WaitPod(ctx, name, func(p *v1.Pod) bool { _, present, _ := kube.EnforcementStatusOf(p); return present })
	if err != nil {
		t.Fatal(err)
	}
	if status, _, err := kube.EnforcementStatusOf(pod); err != nil || !strings.HasPrefix(status.Containers[0].SMs, "MPS") {
		t.Errorf("%s: status %+v, %v", name, status, err)
	}
	return pod
}

// testRectangles checks that pods bound by the profile gshare-rectangle can run. On a node that switches between sets of shares, two pods with all SMs and
// half of the time must not be on one GPU, as they would be if rectangles had no reserve.
func testRectangles(ctx context.Context, t *testing.T, a *agents) {
	create := func(name string, quota int64) {
		pod := on(ask(cluster.Pod(name, "sleep", "inf"), 100, quota, 1024), a.Nodes[1])
		pod.Spec.SchedulerName = "gshare-rectangle"
		a.create(ctx, t, pod)
	}
	for i := range 2 { // one for each GPU
		name := fmt.Sprint("half-", i)
		create(name, 50)
		a.runsAsPlaced(ctx, t, name)
	}
	create("half-2", 50)
	if _, err := a.WaitPod(ctx, "half-2", func(p *v1.Pod) bool {
		return len(p.Status.Conditions) > 0 && strings.Contains(p.Status.Conditions[0].Message, packing.NoSMTime.String())
	}); err != nil {
		t.Fatal(err)
	}
	create("rest", 45)
	if pod := a.runsAsPlaced(ctx, t, "rest"); pod != nil {
		if p, _, err := kube.PlacementOf(pod); err != nil || p.Model != kube.Rectangles {
			t.Errorf("placed as %q (%v)", p.Model, err)
		}
	}
	a.waitBooks(ctx, t, a.Nodes[1])
}

// testContainers checks that each container of a pod, including an init container, has its own share or none.
func testContainers(ctx context.Context, t *testing.T, a *agents) {
	pod := cluster.Pod("several", "sleep", "inf")
	second, plain := pod.Spec.Containers[0], pod.Spec.Containers[0]
	second.Name, plain.Name = "second", "plain"
	pod.Spec.Containers = append(pod.Spec.Containers, second, plain)
	pod.Spec.InitContainers = []v1.Container{{Name: "init", Image: second.Image, ImagePullPolicy: second.ImagePullPolicy, Command: []string{"true"}}}
	pod.Spec.Containers[0].Resources.Limits = limits(30, 50, 2048)
	pod.Spec.Containers[1].Resources.Limits = limits(20, 40, 1024)
	kube.Complete(pod)
	a.create(ctx, t, pod)
	running := a.runsAsPlaced(ctx, t, "several")
	out, err := a.node(running.Spec.NodeName).Exec(ctx, running, "plain", "sh", "-c", "ls /run/gshare /etc/ld.so.preload 2>/dev/null; echo none $CUDA_VISIBLE_DEVICES")
	if err != nil || string(out) != "none\n" {
		t.Errorf("a container without a share has %q (%v)", out, err)
	}
	for _, node := range a.Nodes {
		a.waitBooks(ctx, t, node)
	}
}

// testTwoGPUsInParts checks that if the containers of a pod do not fit on one GPU, they get parts of two GPUs, each with the device, the MPS daemon and the
// limits of its own slice.
func testTwoGPUsInParts(ctx context.Context, t *testing.T, a *agents) {
	pod := cluster.Pod("stages", "sleep", "inf")
	second := pod.Spec.Containers[0]
	second.Name = "second"
	pod.Spec.Containers = append(pod.Spec.Containers, second)
	pod.Spec.Containers[0].Resources.Limits = limits(70, 100, 2048)
	pod.Spec.Containers[1].Resources.Limits = limits(60, 100, 1024)
	kube.Complete(pod)
	a.create(ctx, t, pod)
	placed, _, err := kube.PlacementOf(a.runsAsPlaced(ctx, t, "stages"))
	if err != nil || len(placed.Containers) != 2 {
		t.Fatalf("placement %+v, %v", placed, err)
	}
	if one, two := placed.Containers[0].VGPUs[0].Slice, placed.Containers[1].VGPUs[0].Slice; one == two {
		t.Errorf("both containers are on %s", one)
	}
	for _, node := range a.Nodes {
		a.waitBooks(ctx, t, node)
	}
}

// testWhole checks that a container with whole devices gets them without the hook.
func testWhole(ctx context.Context, t *testing.T, a *agents) {
	a.create(ctx, t, on(ask(cluster.Pod("whole", "sleep", "inf"), 200, 100, 100000), a.Nodes[1]))
	pod, err := a.WaitPod(ctx, "whole", cluster.IsRunning)
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.Nodes[1].Exec(ctx, pod, "main", "sh", "-c", "ls /etc/ld.so.preload /run/gshare/token.sock /usr/lib/gshare 2>/dev/null; echo $CUDA_VISIBLE_DEVICES $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
	if got := strings.TrimSpace(string(out)); err != nil || got != "GPU-0,GPU-1" && got != "GPU-1,GPU-0" {
		t.Errorf("inside is %q (%v)", out, err)
	}
	a.waitBooks(ctx, t, a.Nodes[1])
}

// testTwins repeatedly creates two identical pods at once. They do not fit on one GPU together, so each must get the slice of its own placement.
func testTwins(ctx context.Context, t *testing.T, a *agents) {
	for round := range 5 {
		names := []string{fmt.Sprintf("twin-%d-a", round), fmt.Sprintf("twin-%d-b", round)}
		var group sync.WaitGroup
		for _, name := range names {
			group.Go(func() {
				pod := on(ask(cluster.Pod(name, "sleep", "inf"), 60, 70, 8192), a.Nodes[0])
				if _, err := a.Client().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		var placed []string
		for _, name := range names {
			pod := a.runsAsPlaced(ctx, t, name)
			placement, _, _ := kube.PlacementOf(pod)
			placed = append(placed, placement.Containers[0].VGPUs[0].Slice)
		}
		if placed[0] == placed[1] {
			t.Errorf("round %d: both on %s", round, placed[0])
		}
		a.clear(ctx, t)
	}
}

// testBypass checks that pods which bypassed gshare's scheduler do not run, and that an event says why.
func testBypass(ctx context.Context, t *testing.T, a *agents) {
	named := ask(cluster.Pod("named", "sleep", "inf"), 10, 10, 512)
	named.Spec.NodeName = a.Nodes[0].Name
	a.create(ctx, t, named)
	text := a.waitEvent(ctx, t, "named", "GPUShareNotPlaced")
	t.Logf("event: %s", text)
	pod, err := a.Client().CoreV1().Pods("default").Get(ctx, "named", metav1.GetOptions{})
	if err != nil || pod.Status.Phase != v1.PodPending {
		t.Errorf("a pod that bypassed the scheduler is %v (%v)", pod.Status.Phase, err)
	}
	a.waitGrants(ctx, t, a.Nodes[0], 0)
	// Other pods are not affected.
	a.create(ctx, t, on(ask(cluster.Pod("beside", "sleep", "inf"), 10, 10, 512), a.Nodes[0]))
	a.runsAsPlaced(ctx, t, "beside")
}

// testUnsafe checks that pods are refused whose own fields would circumvent their shares.
func testUnsafe(ctx context.Context, t *testing.T, a *agents) {
	pod := ask(cluster.Pod("unsafe", "sleep", "inf"), 10, 10, 512)
	pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "GSHARE_DIR", Value: "/tmp"}}
	a.create(ctx, t, pod)
	t.Logf("event: %s", a.waitEvent(ctx, t, "unsafe", "GPUShareUnsafe"))
}

// testContainerRestart checks that a restarted container keeps its grant without a new Allocate.
func testContainerRestart(ctx context.Context, t *testing.T, a *agents) {
	pod := on(ask(cluster.Pod("again", "sh", "-c", "test -e /data/second || { touch /data/second; sleep 1; exit 1; }; sleep inf"), 20, 50, 2048), a.Nodes[1])
	pod.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	a.create(ctx, t, pod)
	if _, err := a.WaitPod(ctx, "again", func(p *v1.Pod) bool {
		return cluster.IsRunning(p) && p.Status.ContainerStatuses[0].RestartCount >= 1
	}); err != nil {
		t.Fatal(err)
	}
	a.runsAsPlaced(ctx, t, "again")
	a.waitBooks(ctx, t, a.Nodes[1])
}

// untilTold makes a container wait until the test creates a file in it. After a fixed time, the container might end before the test has seen it run.
const untilTold = "until test -e /told; do sleep 0.1; done"

// testGivenBack ends pods in every possible way, and checks that their shares are free again soon.
func testGivenBack(ctx context.Context, t *testing.T, a *agents) {
	node := a.Nodes[0]
	now := int64(0)
	ends := map[string]func(name string) error{
		"deleted": func(name string) error {
			return a.Client().CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{})
		},
		"forced": func(name string) error {
			return a.Client().CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
		},
		"evicted": func(name string) error {
			return a.Client().CoreV1().Pods("default").EvictV1(ctx, &policy.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
		},
		"succeeded": nil, "failed": nil, "oom": nil,
	}
	commands := map[string]string{
		"deleted": "sleep inf", "forced": "sleep inf", "evicted": "sleep inf", "succeeded": untilTold, "failed": untilTold + "; exit 1",
		"oom": untilTold + "; tail /dev/zero",
	}
	for name, end := range ends {
		pod := on(ask(cluster.Pod(name, "sh", "-c", commands[name]), 20, 20, 1024), node)
		pod.Spec.RestartPolicy = v1.RestartPolicyNever
		pod.Spec.Containers[0].Resources.Limits[v1.ResourceMemory] = resource.MustParse("64Mi")
		second := int64(1)
		pod.Spec.TerminationGracePeriodSeconds = &second
		a.create(ctx, t, pod)
		pod, err := a.WaitPod(ctx, name, cluster.IsRunning)
		if err != nil {
			t.Fatal(err)
		}
		a.waitGrants(ctx, t, node, 1)
		if end == nil {
			_, _ = node.Exec(ctx, pod, "main", "touch", "/told") // may itself be killed together with the container
		} else if err := end(name); err != nil {
			t.Fatal(err)
		}
		if err := a.waitEnded(ctx, name); err != nil {
			t.Fatal(err)
		}
		for len(pidsOf(t, pod)) > 0 { // after a forced deletion, the kubelet still has to end the containers
			if ctx.Err() != nil {
				t.Fatalf("%s: processes are left", name)
			}
			time.Sleep(20 * time.Millisecond)
		}
		took := a.waitGrants(ctx, t, node, 0)
		t.Logf("%s: back %v after its last process had ended", name, took)
		if took > 2*time.Minute { // it takes a second, but the machine may be busy
			t.Errorf("%s: back after %v", name, took)
		}
	}
	// A pod whose image is missing only gets device IDs, and gives them back.
	missing := on(ask(cluster.Pod("no-image", "sleep", "inf"), 20, 20, 1024), node)
	missing.Spec.Containers[0].Image = "docker.io/local/missing:1"
	a.create(ctx, t, missing)
	if _, err := a.WaitPod(ctx, "no-image", func(p *v1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].State.Waiting != nil && p.Status.ContainerStatuses[0].State.Waiting.Reason == "ErrImageNeverPull"
	}); err != nil {
		t.Fatal(err)
	}
	a.waitGrants(ctx, t, node, 0)
}

// waitEnded blocks until a pod is terminal or deleted.
func (a *agents) waitEnded(ctx context.Context, name string) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		var pods *v1.PodList
		pods, last = a.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
		return last == nil && (len(pods.Items) == 0 || slices.Contains([]v1.PodPhase{v1.PodSucceeded, v1.PodFailed}, pods.Items[0].Status.Phase)), nil
	})
	return errors.Join(err, last)
}

// testHealth checks that a pod on a failed device is marked, and that new pods are placed elsewhere until the device recovers, without a restart of the
// container.
func testHealth(ctx context.Context, t *testing.T, a *agents) {
	node := a.Nodes[0]
	a.create(ctx, t, on(ask(cluster.Pod("sick", "sleep", "inf"), 60, 70, 8192), node))
	slice := a.sliceOf(ctx, t, "sick")
	sick := "devices:\n"
	for _, uuid := range []string{"GPU-0", "GPU-1"} {
		fault := ""
		if uuid == slice {
			fault = ", fault: Xid 79"
		}
		sick += "- {uuid: " + uuid + ", model: A100, sms: 108, memoryMiB: 81920" + fault + "}\n"
	}
	before := a.waitNode(ctx, t, node, func(*v1.Node) bool { return true }).Status.Capacity
	a.of[node.Name].setDevices(t, sick)
	marked, err := a.WaitPod(ctx, "sick", func(p *v1.Pod) bool {
		status, present, err := kube.EnforcementStatusOf(p)
		return present && err == nil && status.Containers[0].Health != ""
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("event: %s", a.waitEvent(ctx, t, "sick", "GPUFault"))
	// Two more pods of that size need both devices. One has to wait until the device has recovered.
	a.createOffSlice(ctx, t, node, "first", slice)
	a.create(ctx, t, on(ask(cluster.Pod("second", "sleep", "inf"), 30, 60, 512), node))
	for _, name := range []string{"first", "second"} {
		if other := a.sliceOf(ctx, t, name); other == slice {
			t.Errorf("%s was placed on the slice that failed", name)
		}
	}
	a.create(ctx, t, on(ask(cluster.Pod("waiting", "sleep", "inf"), 100, 90, 512), node))
	if _, err := a.WaitPod(ctx, "waiting", func(p *v1.Pod) bool {
		return len(p.Status.Conditions) > 0 && p.Status.Conditions[0].Reason == "Unschedulable"
	}); err != nil {
		t.Fatal(err)
	}
	after := a.waitNode(ctx, t, node, func(*v1.Node) bool { return true }).Status.Capacity
	for name, q := range before {
		if now := after[name]; now.Cmp(q) != 0 {
			t.Errorf("capacity of %s went from %v to %v", name, q.String(), now.String())
		}
	}
	a.of[node.Name].setDevices(t, twoGPUs)
	recovered, err := a.WaitPod(ctx, "sick", func(p *v1.Pod) bool {
		status, present, err := kube.EnforcementStatusOf(p)
		return present && err == nil && status.Containers[0].Health == ""
	})
	if err != nil {
		t.Fatal(err)
	}
	if marked.Status.ContainerStatuses[0].RestartCount != recovered.Status.ContainerStatuses[0].RestartCount {
		t.Error("the container was started again")
	}
	a.waitNode(ctx, t, node, func(n *v1.Node) bool {
		inv, _, err := kube.InventoryOf(n)
		return err == nil && !slices.ContainsFunc(inv.Slices, func(s kube.Slice) bool { return !s.Healthy })
	})
}

// createOffSlice creates a pod on a node once the scheduler knows that a slice has failed. The scheduler learns that from the API server, as the test does,
// and possibly later than the test. Whatever the scheduler places on the slice before is deleted.
func (a *agents) createOffSlice(ctx context.Context, t *testing.T, node *cluster.Node, name, slice string) {
	t.Helper()
	pods := a.Client().CoreV1().Pods("default")
	for {
		a.create(ctx, t, on(ask(cluster.Pod(name, "sleep", "inf"), 30, 60, 512), node))
		var p kube.Placement
		if _, err := a.WaitPod(ctx, name, func(pod *v1.Pod) (present bool) { p, present, _ = kube.PlacementOf(pod); return present }); err != nil {
			t.Fatal(err)
		}
		if p.Containers[0].VGPUs[0].Slice != slice {
			return
		}
		t.Logf("%s was placed before the scheduler knew of the failure", name)
		if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		err := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			_, err := pods.Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err), nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (a *agents) sliceOf(ctx context.Context, t *testing.T, name string) string {
	t.Helper()
	pod, err := a.WaitPod(ctx, name, cluster.IsRunning)
	if err != nil {
		t.Fatal(err)
	}
	placement, present, err := kube.PlacementOf(pod)
	if err != nil || !present {
		t.Fatalf("%s: placement: %v", name, err)
	}
	return placement.Containers[0].VGPUs[0].Slice
}

// testZeroed checks that the agent restores the node's extended resources after they were reset to zero, as the kubelet does at a reboot.
func testZeroed(ctx context.Context, t *testing.T, a *agents) {
	zero := []byte(`{"status":{"capacity":{"gshare/mem":"0","gshare/sm-time":"0"},"allocatable":{"gshare/mem":"0","gshare/sm-time":"0"}}}`)
	_, err := a.Client().CoreV1().Nodes().Patch(ctx, a.Nodes[0].Name, types.MergePatchType, zero, metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	a.waitInventory(ctx, t, a.Nodes[0])
	t.Logf("restored in %v", time.Since(began))
}
