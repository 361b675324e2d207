package controlplane_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/test/controlplane"
)

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func start(ctx context.Context, t *testing.T, o controlplane.Options) *controlplane.ControlPlane {
	t.Helper()
	began := time.Now()
	c, err := controlplane.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("control plane started in %v", time.Since(began))
	t.Cleanup(func() { _ = c.Stop() })
	return c
}

func stop(t *testing.T, c *controlplane.ControlPlane) {
	t.Helper()
	began := time.Now()
	if err := c.Stop(); err != nil {
		t.Error(err)
	}
	t.Logf("control plane stopped in %v", time.Since(began))
}

func startScheduler(ctx context.Context, t *testing.T, c *controlplane.ControlPlane, o controlplane.SchedulerOptions) *controlplane.Process {
	t.Helper()
	began := time.Now()
	p, err := c.StartScheduler(ctx, "scheduler", []byte(defaultProfile), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("scheduler started in %v", time.Since(began))
	return p
}

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// logMemory logs the memory of the child processes, where /proc has it.
func logMemory(t *testing.T, processes ...*controlplane.Process) {
	for _, p := range processes {
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
		for line := range bytes.Lines(status) {
			if bytes.HasPrefix(line, []byte("VmRSS")) || bytes.HasPrefix(line, []byte("RssAnon")) {
				t.Logf("%s %s", p.Name, bytes.TrimSpace(line))
			}
		}
	}
}

// startProxy forwards requests to the API server as the configuration's user, and counts them. It returns the proxy's URL
// and the count.
func startProxy(t *testing.T, to *rest.Config) (string, *atomic.Int64) {
	t.Helper()
	target, err := url.Parse(to.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(to)
	if err != nil {
		t.Fatal(err)
	}
	requests := &atomic.Int64{}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) {
		requests.Add(1)
		r.SetURL(target)
	}}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.CloseClientConnections)
	return server.URL, requests
}

func createNode(ctx context.Context, t *testing.T, client *kubernetes.Clientset) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	node, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	node.Status.Allocatable = resources("cpu", "8", "memory", "16Gi", "pods", "110", "gshare/vgpu", "16")
	node.Status.Capacity = node.Status.Allocatable
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func createPod(ctx context.Context, t *testing.T, client *kubernetes.Clientset, name string) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "c", Image: "none",
			Resources: corev1.ResourceRequirements{Limits: resources("cpu", "1", "gshare/vgpu", "1")},
		}}},
	}
	if _, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func waitBound(ctx context.Context, t *testing.T, client *kubernetes.Clientset, name string) {
	t.Helper()
	began := time.Now()
	events, err := client.CoreV1().Pods("default").Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: name}))
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok && pod.Spec.NodeName == "node-1" {
			t.Logf("pod %s bound after %v", name, time.Since(began))
			return
		}
	}
	t.Fatalf("pod %s was not bound: %v", name, ctx.Err())
}

// resources returns a resource list from alternating names and quantities.
func resources(namesAndQuantities ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for pair := range slices.Chunk(namesAndQuantities, 2) {
		list[corev1.ResourceName(pair[0])] = resource.MustParse(pair[1])
	}
	return list
}
