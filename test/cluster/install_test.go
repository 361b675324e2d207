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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// TestInstall does what an administrator does, with kubectl and images: label nodes, apply the manifests, check the installation, upgrade, roll
// back and uninstall. Meanwhile, users run pods, reach limits, and ask why a pod waits. In the end nothing may be left, once the kubelet has
// forgotten the device plugin.
func TestInstall(t *testing.T) {
	i := startEmpty(t)
	if found := i.footprint(t); len(found) != 0 {
		t.Fatalf("before: %q", found)
	}
	i.kubectl(t, "label", "node", "--all", "gshare.dev/gpus=true")
	i.apply(t, older)
	i.rolled(t)
	i.waitInventory(i.ctx, t, i.Nodes[0])
	for _, part := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"least pod", i.leastPod}, {"watched", i.watched}, {"doctor", i.doctor}, {"top", i.top}, {"version", i.versions}, {"deleted", func(t *testing.T) { i.clear(i.ctx, t) }},
		{"quota", i.quota}, {"explain", i.explains}, {"upgrade", i.upgrades},
	} {
		if !t.Run(part.name, part.run) {
			return // what it has left would make the others fail too
		}
	}
	if found := i.footprint(t); len(found) < 30 {
		t.Errorf("an installed gshare shows only %q", found)
	}
	i.uninstall(t)
	i.kubectl(t, "label", "node", "--all", "gshare.dev/gpus-")
	if found := i.footprint(t); len(found) != 0 {
		t.Errorf("after: %q", found)
	}
}

// leastPod runs a pod that requests only gshare/sm and gshare/mem, and checks its enforcement status. The pod is a client of the MPS daemon even
// though it has a volume of its own at /dev/shm.
func (i *installed) leastPod(t *testing.T) {
	t.Helper()
	pod := cluster.Pod("least", spin(time.Millisecond, 20, "sync=2", "pause=20000000")...)
	pod.Spec.Containers[0].Image = workload
	pod.Spec.Volumes = []v1.Volume{{Name: "memory", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: v1.StorageMediumMemory}}}}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "memory", MountPath: "/dev/shm"}}
	pod.Spec.SchedulerName = ""
	both := limits(24, 0, 4096)
	delete(both, kube.ResourceQuota)
	pod.Spec.Containers[0].Resources.Limits = both
	err := wait.PollUntilContextCancel(i.ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		got, err := i.Client().CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if i.defaults == "" {
			return err != nil && strings.Contains(err.Error(), "defaults: this cluster fills in nothing; write gshare/vgpu: 1, gshare/sm-time: 2400"), nil
		}
		return err == nil && got.Spec.SchedulerName == kube.SchedulerName, nil // the policies are not in force immediately
	})
	if err != nil {
		t.Fatal(err)
	}
	i.create(i.ctx, t, i.written(pod))
	got := i.runsAsPlaced(i.ctx, t, "least")
	if status, _, err := kube.EnforcementStatusOf(got); err != nil || status.Containers[0].Health != "" || got.Spec.SchedulerName != kube.SchedulerName {
		t.Errorf("%+v, %v, scheduler %s", status, err, got.Spec.SchedulerName)
	}
}

// uninstall follows the instructions of docs/operate.md.
func (i *installed) uninstall(t *testing.T) {
	t.Helper()
	i.kubectl(t, "-n", "gshare-system", "patch", "daemonset", "gshare-node", "--patch-file", i.repository(t, "manifests/node/uninstall.yaml"))
	i.kubectl(t, "-n", "gshare-system", "rollout", "status", "daemonset/gshare-node", "--timeout=480s")
	i.kubectl(t, "delete", "-k", i.overlay(t, older))
}

// installed is a cluster with the stock scheduler, in which gshare is run from images.
type installed struct {
	*agents
	ctx        context.Context
	kubeconfig string
	plugin     string // path of kubectl-gshare
	defaults   string // API version in which mutating admission policies are served; "" if none
}

// readDefaults determines in which API version the API server serves mutating admission policies.
func (i *installed) readDefaults(t *testing.T) {
	t.Helper()
	for _, version := range []string{"v1beta1", "v1"} { // the newest one wins
		list, err := i.Client().Discovery().ServerResourcesForGroupVersion("admissionregistration.k8s.io/" + version)
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		if err == nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == "mutatingadmissionpolicies" }) {
			i.defaults = version
		}
	}
}

// written returns the pod as its user has to write it: complete if no policy would complete it.
func (i *installed) written(pod *v1.Pod) *v1.Pod {
	if i.defaults == "" {
		kube.Complete(pod)
	}
	return pod
}

// startEmpty starts a cluster with eight simulated GPUs and the images of both editions, where gshare is not installed yet.
func startEmpty(t *testing.T) *installed {
	t.Helper()
	driver, plugin := buildDriver(t), newer.build(t, "gshare")
	i := startWithImages(t, slices.Concat(older.images(t, driver), newer.images(t, driver), []cluster.Image{workloadImage(t, driver)}))
	if err := os.Symlink(plugin, i.plugin); err != nil {
		t.Fatal(err)
	}
	i.addGPUs(t, driver)
	return i
}

// startWithImages starts a cluster of one node with these images.
func startWithImages(t *testing.T, images []cluster.Image) *installed {
	t.Helper()
	c := cluster.Start(t, cluster.Options{
		Nodes:           1,
		SchedulerConfig: []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"),
		Images:          images,
	})
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	t.Cleanup(cancel)
	i := &installed{agents: &agents{Cluster: c}, ctx: ctx, kubeconfig: filepath.Join(c.Dir, "admin.kubeconfig"), plugin: filepath.Join(c.Dir, "kubectl-gshare")}
	i.readDefaults(t)
	t.Cleanup(func() { i.explain(t) })
	content, err := c.Kubeconfig(c.Token(access.Admin))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(i.kubeconfig, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return i
}

// addGPUs installs eight simulated GPUs with their driver on the node.
func (i *installed) addGPUs(t *testing.T, driver string) {
	t.Helper()
	var uuids []string
	for n := range 8 {
		uuids = append(uuids, fmt.Sprintf("GPU-%d", n))
	}
	i.gpus = startGPUs(t, i.agents, driver, uuids...)
	i.describeGPUs(t, read(t, filepath.Join(i.Dir, "driver.yaml")), eightGPUs)
}

// describeGPUs writes the files about the node's simulated GPUs into /etc/cdi, from where the agent's pod mounts them: the description of what the
// driver adds to containers, and the list of the GPUs.
func (i *installed) describeGPUs(t *testing.T, driver, devices string) {
	t.Helper()
	node := i.Nodes[0]
	folder := node.Machine.HostPath("/etc/cdi")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "simulated.yaml"), []byte(driver), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &agent{node: node, devices: filepath.Join(folder, "devices.simulated"), address: "127.0.0.1:9477"} // the process of the agent is in a pod
	a.setDevices(t, devices)
	i.of = map[string]*agent{node.Name: a}
}

// hyperkube returns the path of the binary that contains kubectl.
func hyperkube(t *testing.T) string { return (&installed{}).repository(t, "bin/cluster/hyperkube") }

func (*installed) repository(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../..", path))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// kubectl runs kubectl on a node, where the API server can be reached.
func (i *installed) kubectl(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{"kubectl", "--kubeconfig", i.kubeconfig, "--cache-dir", filepath.Join(i.Dir, "cache")}, args...)
	out, err := i.Nodes[0].Machine.Run(i.ctx, hyperkube(t), args...)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// explain logs what helps to find the cause of a failure.
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

// apply installs an edition, or upgrades or rolls back to it.
func (i *installed) apply(t *testing.T, v edition) {
	t.Helper()
	i.kubectl(t, "apply", "-k", i.overlay(t, v))
}

// rolled blocks until all rollouts have completed.
func (i *installed) rolled(t *testing.T) {
	t.Helper()
	for _, what := range programs {
		i.kubectl(t, "-n", "gshare-system", "rollout", "status", what, "--timeout=180s")
	}
}

var programs = []string{"deployment/gshare-scheduler", "daemonset/gshare-node"}

// nodeConfiguration is the configuration for kind with the simulated driver and with MPS, whose clients fail when their server ends. The token
// server is slowed down as in the other tests.
const nodeConfiguration = `apiVersion: gshare.dev/v1alpha1
kind: NodeConfiguration
simulatedDevices: /etc/cdi/devices.simulated
simulatedMPS: /usr/lib/gshare/nvidia-cuda-mps-control
window: 500ms
turn: 25ms
runAhead: 5ms
kubernetes:
  driver: /etc/cdi/simulated.yaml
  hook: /usr/lib/gshare/libgshare.so
  listen: 127.0.0.1:9477
  healthPeriod: 1s
`

// overlay returns the kustomize overlay for kind, changed for a cluster without kube-proxy, where the address of the service kubernetes does not
// work.
func (i *installed) overlay(t *testing.T, v edition) string {
	t.Helper()
	folder := filepath.Join(i.Dir, "install-"+v.tag)
	from := func(path string) string { return must[string](t)(filepath.Rel(folder, path)) }
	base, component := from(filepath.Join(v.root(t), "manifests/overlays/kind")), ""
	if os.Getenv(cluster.Program) != "" { // an older version of Kubernetes
		base += ", " + from(i.repository(t, "manifests/older"))
	}
	switch i.defaults {
	case "v1beta1":
		component = from(i.repository(t, "manifests/older/v1beta1"))
	case "":
		component = from(i.repository(t, "manifests/older/nodefaults"))
	}
	host, port, _ := strings.Cut(strings.TrimPrefix(i.Config(access.Admin).Host, "https://"), ":")
	text := fmt.Sprintf("resources: [%s]\ncomponents: [%s]\nimages: [{name: gshare-node, newTag: %s}, {name: gshare-scheduler, newTag: %[3]s}]\n"+
		"configMapGenerator: [{name: gshare-node-config, namespace: gshare-system, behavior: replace, files: [node.yaml]}]\npatches:\n", base, component, v.tag)
	for _, target := range [][3]string{{"DaemonSet", "gshare-node", "agent"}, {"Deployment", "gshare-scheduler", "scheduler"}} {
		text += fmt.Sprintf(`- patch: |
    apiVersion: apps/v1
    kind: %s
    metadata: {name: %s, namespace: gshare-system}
    spec: {template: {spec: {containers: [{name: %s, env: [{name: KUBERNETES_SERVICE_HOST, value: "%s"}, {name: KUBERNETES_SERVICE_PORT, value: "%s"}]}]}}}
`, target[0], target[1], target[2], host, port)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"kustomization.yaml": text, "node.yaml": nodeConfiguration} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}
