package cluster_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// TestInstall does what an administrator does, with kubectl and in images: labels the nodes, applies manifests, runs a pod that
// says no more than its share, and uninstalls. Then nothing is left, once the kubelet has forgotten the plugin.
func TestInstall(t *testing.T) {
	long(t)
	i := startEmpty(t)
	if found := i.footprint(t); len(found) != 0 {
		t.Fatalf("before: %q", found)
	}
	i.kubectl(t, "label", "node", "--all", "gshare.dev/gpus=true")
	i.kubectl(t, "apply", "-k", i.overlay(t))
	i.kubectl(t, "-n", "gshare-system", "rollout", "status", "deployment/gshare-scheduler", "--timeout=120s")
	i.kubectl(t, "-n", "gshare-system", "rollout", "status", "daemonset/gshare-node", "--timeout=120s")
	i.waitInventory(i.ctx, t, i.Nodes[0])
	i.leastPod(t)
	i.watched(t)
	if found := i.footprint(t); len(found) < 30 {
		t.Errorf("an installed gshare shows only %q", found)
	}
	i.kubectl(t, "delete", "pod", "least")
	i.uninstall(t)
	i.kubectl(t, "label", "node", "--all", "gshare.dev/gpus-")
	if found := i.footprint(t); len(found) != 0 {
		t.Errorf("after: %q", found)
	}
}

// leastPod runs a pod that says gshare/sm and gshare/mem alone. It is enforced, and its report says so.
func (i *installed) leastPod(t *testing.T) {
	t.Helper()
	pod := cluster.Pod("least", "sleep", "inf")
	pod.Spec.SchedulerName = ""
	both := limits(24, 0, 4096)
	delete(both, kube.ResourceQuota)
	pod.Spec.Containers[0].Resources.Limits = both
	err := wait.PollUntilContextCancel(i.ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		got, err := i.Client().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && got.Spec.SchedulerName == kube.SchedulerName, nil // the policies are not in force at once
	})
	if err != nil {
		t.Fatal(err)
	}
	i.create(i.ctx, t, pod)
	got := i.runsAsPlaced(i.ctx, t, "least")
	if truth, _, err := kube.TruthOf(got); err != nil || truth.Containers[0].Health != "" || got.Spec.SchedulerName != kube.SchedulerName {
		t.Errorf("%+v, %v, scheduler %s", truth, err, got.Spec.SchedulerName)
	}
}

// uninstall is what manifests/docs/operate.md says.
func (i *installed) uninstall(t *testing.T) {
	t.Helper()
	i.kubectl(t, "-n", "gshare-system", "patch", "daemonset", "gshare-node", "--patch-file", i.repository(t, "manifests/node/uninstall.yaml"))
	i.kubectl(t, "-n", "gshare-system", "rollout", "status", "daemonset/gshare-node", "--timeout=480s")
	i.kubectl(t, "delete", "-k", i.overlay(t))
}

// installed is a cluster whose scheduler is a stock one, and in which gshare runs from images.
type installed struct {
	*agents
	ctx        context.Context
	kubeconfig string
}

func startEmpty(t *testing.T) *installed {
	t.Helper()
	node, hook := buildAgent(t), buildHook(t)
	files := withLibraries(t, "/bin/gshare-node", node)
	files["/usr/lib/gshare/libgshare.so"] = hook
	c := cluster.Start(t, cluster.Options{
		Nodes:           1,
		SchedulerConfig: []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"),
		Images: []cluster.Image{
			{Name: "docker.io/library/gshare-node:dev", Files: files, Bare: true},
			{Name: "docker.io/library/gshare-scheduler:dev", Files: withLibraries(t, "/bin/gshare-scheduler", hyperkube(t)), Bare: true},
		},
	})
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	t.Cleanup(cancel)
	i := &installed{agents: &agents{Cluster: c}, ctx: ctx, kubeconfig: filepath.Join(c.Dir, "admin.kubeconfig")}
	t.Cleanup(func() { i.explain(t) })
	content, err := c.Kubeconfig(c.Token(cluster.Admin))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(i.kubeconfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

// hyperkube has the scheduler and kubectl in it.
func hyperkube(t *testing.T) string { return (&installed{}).repository(t, "bin/cluster/hyperkube") }

func (*installed) repository(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// kubectl runs on a node, which reaches the API server.
func (i *installed) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{"kubectl", "--kubeconfig", i.kubeconfig, "--cache-dir", filepath.Join(i.Dir, "cache")}, args...)
	out, err := i.Nodes[0].Machine.Run(i.ctx, hyperkube(t), args...)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// explain shows what tells why a test has failed.
func (i *installed) explain(t *testing.T) {
	if !t.Failed() {
		return
	}
	for _, args := range [][]string{
		{"get", "pods,events", "-A", "-o", "wide"},
		{"-n", "gshare-system", "logs", "-l", "app=gshare-scheduler", "--tail=30"},
		{"-n", "gshare-system", "logs", "daemonset/gshare-node", "--tail=30"},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		out, err := i.Nodes[0].Machine.Run(ctx, hyperkube(t), append([]string{"kubectl", "--kubeconfig", i.kubeconfig, "--cache-dir", filepath.Join(i.Dir, "cache")}, args...)...)
		cancel()
		t.Logf("%v: %v\n%s", args, err, out)
	}
}

// overlay is that of kind, for a cluster without kube-proxy: nobody serves the address of the service kubernetes.
func (i *installed) overlay(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(i.Dir, "install")
	base, err := filepath.Rel(folder, i.repository(t, "manifests/overlays/kind"))
	if err != nil {
		t.Fatal(err)
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(i.Config(cluster.Admin).Host, "https://"), ":")
	text := fmt.Sprintf("resources: [%s]\npatches:\n", base)
	for _, target := range []string{"DaemonSet", "Deployment"} {
		text += fmt.Sprintf(`- target: {kind: %s}
  patch: |
    - {op: add, path: /spec/template/spec/containers/0/env, value: []}
    - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: KUBERNETES_SERVICE_HOST, value: "%s"}}
    - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: KUBERNETES_SERVICE_PORT, value: "%s"}}
    - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}}
`, target, host, port)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}
