package cluster_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/cluster/machine"
)

// TestCluster tests the harness on one cluster, in increasingly destructive steps.
func TestCluster(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Images: []cluster.Image{{Name: extraImage, Files: map[string]string{"/text/of/this": "README.md"}}}})
	first := make([]*corev1.Pod, len(c.Nodes))
	for i, node := range c.Nodes {
		first[i] = runOn(t, c, node, "first-on-"+node.Name)
	}
	t.Run("pods are reached", func(t *testing.T) { reached(t, c, first[0]) })
	t.Run("nodes are apart", func(t *testing.T) { apart(t, c, first) })
	t.Run("image", func(t *testing.T) { image(t, c) })
	t.Run("kubelet killed", func(t *testing.T) { kubeletKilled(t, c, first[0]) })
	t.Run("containerd killed", func(t *testing.T) { containerdKilled(t, c, first[0]) })
	t.Run("control plane killed", func(t *testing.T) { controlPlaneKilled(t, c, first) })
	t.Run("node rebooted", func(t *testing.T) { nodeRebooted(t, c, first) })
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

// runOn runs a pod on a node and returns it once it is running.
func runOn(t *testing.T, c *cluster.Cluster, node *cluster.Node, name string) *corev1.Pod {
	t.Helper()
	pod := cluster.Pod(name, "sh", "-c", "echo hello; exec sleep inf")
	pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name}
	return create(t, c, pod)
}

// create creates a pod and returns it once it is running.
func create(t *testing.T, c *cluster.Cluster, pod *corev1.Pod) *corev1.Pod {
	t.Helper()
	ctx := testContext(t)
	must[*corev1.Pod](t)(c.Client().CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{}))
	return must[*corev1.Pod](t)(c.WaitPod(ctx, pod.Name, cluster.IsRunning))
}

// shell runs a script in the pod's container and returns its output.
func shell(t *testing.T, c *cluster.Cluster, pod *corev1.Pod, script string) string {
	t.Helper()
	for _, node := range c.Nodes {
		if node.Name == pod.Spec.NodeName {
			out := must[[]byte](t)(node.Exec(testContext(t), pod, "main", "sh", "-ec", script))
			return strings.TrimSpace(string(out))
		}
	}
	t.Fatalf("pod %s is on no node", pod.Name)
	return ""
}

// reached checks that a pod can be reached through the kubelet's port, as kubectl does, and at its own address.
func reached(t *testing.T, c *cluster.Cluster, pod *corev1.Pod) {
	ctx := testContext(t)
	for { // containerd copies what a container writes into its log file a moment later
		logs := must[[]byte](t)(c.Client().CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(ctx))
		if string(logs) == "hello\n" {
			break
		}
		if len(logs) > 0 {
			t.Fatalf("the log is %q", logs)
		}
		time.Sleep(10 * time.Millisecond)
	}
	if got := shell(t, c, pod, "hostname; echo mark >/mark"); got != pod.Name {
		t.Errorf("the host name is %q", got)
	}
	if _, err := c.Nodes[0].Exec(ctx, pod, "main", "sh", "-c", "echo reason >&2; exit 7"); err == nil || !strings.Contains(err.Error(), "exit status 7: reason") {
		t.Errorf("a command that fails gave %v", err)
	}
}

// apart checks that pods of different nodes reach each other, and that each node's container runtime knows only its own
// containers.
func apart(t *testing.T, c *cluster.Cluster, pods []*corev1.Pod) {
	if got := shell(t, c, pods[0], "ping -c 1 -W 10 "+pods[1].Status.PodIP); !strings.Contains(got, "1 packets received") {
		t.Errorf("ping said %s", got)
	}
	if _, err := c.Nodes[1].Exec(testContext(t), pods[0], "main", "true"); err == nil {
		t.Error("node-1 runs a container of node-0")
	}
}

const extraImage = "docker.io/local/extra:1"

// image runs a pod with an image that the test has built.
func image(t *testing.T, c *cluster.Cluster) {
	pod := cluster.Pod("extra", "sleep", "inf")
	pod.Spec.Containers[0].Image = extraImage
	pod = create(t, c, pod)
	want := must[[]byte](t)(os.ReadFile("README.md"))
	if got := shell(t, c, pod, "cat /text/of/this"); got != strings.TrimSpace(string(want)) {
		t.Errorf("the file has %q", got)
	}
}

// same fails unless the pod is still running in the same container.
func same(t *testing.T, c *cluster.Cluster, was *corev1.Pod) {
	t.Helper()
	if got := shell(t, c, was, "cat /mark"); got != "mark" {
		t.Errorf("the container has %q in its file", got)
	}
	now := must[*corev1.Pod](t)(c.WaitPod(testContext(t), was.Name, cluster.IsRunning))
	if before, after := was.Status.ContainerStatuses[0], now.Status.ContainerStatuses[0]; before.ContainerID != after.ContainerID {
		t.Errorf("%s had container %s and has %s after %d restarts", was.Name, before.ContainerID, after.ContainerID, after.RestartCount)
	}
}

func kubeletKilled(t *testing.T, c *cluster.Cluster, pod *corev1.Pod) {
	node := c.Nodes[0]
	node.Kubelet.Kill()
	shell(t, c, pod, "test -e /mark") // while the killed program is down
	if err := node.Kubelet.Restart(testContext(t)); err != nil {
		t.Fatal(err)
	}
	runOn(t, c, node, "after-kubelet")
	same(t, c, pod)
}

func containerdKilled(t *testing.T, c *cluster.Cluster, pod *corev1.Pod) {
	node := c.Nodes[0]
	node.Containerd.Kill()
	if err := node.Containerd.Restart(testContext(t)); err != nil {
		t.Fatal(err)
	}
	runOn(t, c, node, "after-containerd")
	same(t, c, pod)
}

func controlPlaneKilled(t *testing.T, c *cluster.Cluster, pods []*corev1.Pod) {
	ctx := testContext(t)
	killed := []*machine.Process{c.Scheduler, c.ControllerManager, c.APIServer, c.Etcd}
	for _, process := range killed {
		process.Kill()
	}
	shell(t, c, pods[0], "test -e /mark") // while the killed programs are down
	for _, process := range slices.Backward(killed) {
		if err := process.Restart(ctx); err != nil {
			t.Fatal(err)
		}
	}
	for _, node := range c.Nodes {
		runOn(t, c, node, "after-control-plane-on-"+node.Name)
	}
	same(t, c, pods[0])
}

func nodeRebooted(t *testing.T, c *cluster.Cluster, pods []*corev1.Pod) {
	ctx := testContext(t)
	if err := c.Nodes[0].Reboot(ctx); err != nil {
		t.Fatal(err)
	}
	again := must[*corev1.Pod](t)(c.WaitPod(ctx, pods[0].Name, func(pod *corev1.Pod) bool {
		return cluster.IsRunning(pod) && pod.Status.ContainerStatuses[0].RestartCount >= 1
	}))
	if got := shell(t, c, again, "ls /"); strings.Contains(got, "mark") {
		t.Error("the container survived the reboot")
	}
	runOn(t, c, c.Nodes[0], "after-reboot")
	if now := must[*corev1.Pod](t)(c.WaitPod(ctx, pods[1].Name, cluster.IsRunning)); now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Error("the other node's container was restarted")
	}
}
