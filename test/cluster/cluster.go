// Package cluster runs a real Kubernetes cluster on this machine for tests. Machines are sets of Linux namespaces: the
// control machine runs etcd, kube-apiserver, kube-controller-manager and gshare-scheduler, and each node runs
// containerd, runc and a kubelet, all at their usual paths and ports. It needs root and a few programs of the Linux
// distribution, but no network, registry or images.
//
// Every program can be killed and restarted, and a node can be rebooted. Nothing is left when a test ends. If the test process is killed,
// the machines end with it, and the next Start removes the directory and the cgroups that remain.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/test/executable"
)

// startTimeout limits the start of a cluster. It takes about 15 seconds on an idle machine.
const startTimeout = 5 * time.Minute

// Options configures a cluster. The zero value selects the defaults.
type Options struct {
	Nodes           int            // 2 if zero; their names are node-0, node-1 and so on
	SchedulerConfig []byte         // a KubeSchedulerConfiguration without gshare's plugins; gshare's own, manifests/scheduler, if nil
	APIServerArgs   []string       // more flags of kube-apiserver
	KubeletConfig   map[string]any // fields of the KubeletConfiguration that replace the cluster's own
	Images          []Image        // in addition to BusyboxImage
	Runtime         string         // folder of the runc to use; empty: the one in PATH
}

// Cluster is a running Kubernetes cluster for a test, with the processes of its control plane and its nodes. It has many methods because
// tests start, stop and reach these processes through it, and have no other handle of the cluster.
type Cluster struct {
	Nodes []*Node
	// The control plane's processes, all on one machine.
	Etcd, APIServer, ControllerManager, Scheduler *machine.Process
	// Dir is the directory of the cluster's files. Every machine sees it under the same path.
	Dir string

	options     Options
	programs    string   // folder of the programs that hack/cluster.sh builds
	images      []string // paths of image archives
	lock        *os.File
	control     *machine.Machine
	credentials *access.Credentials
	client      *kubernetes.Clientset
}

// Start starts a cluster and waits until all nodes are ready. The cluster is stopped at the end of the test; if the test failed, the last
// lines of all logs are printed. Start skips the test if this machine cannot run a cluster.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if err := checkRequirements(); err != nil {
		t.Skip(err)
	}
	if o.Nodes == 0 {
		o.Nodes = 2
	}
	programs, err := executable.Build("build")
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{options: o, programs: programs}
	t.Cleanup(func() { c.finish(t) })
	began := time.Now()
	err = c.start(t.Context())
	if errors.Is(err, machine.ErrNotSupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("start cluster: %v", err)
	}
	t.Logf("cluster of %d nodes started in %.1f s", o.Nodes, time.Since(began).Seconds())
	return c
}

func (c *Cluster) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.provision(ctx); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.startControlPlane(groupCtx) })
	for _, node := range c.Nodes {
		group.Go(func() error { return node.startContainerd(groupCtx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	group, groupCtx = errgroup.WithContext(ctx)
	for _, node := range c.Nodes {
		group.Go(func() error { return node.startKubelet(groupCtx) })
	}
	group.Go(func() error { return c.waitServiceAccount(groupCtx, "default") })
	return group.Wait()
}

// program returns the path of a program that hack/cluster.sh has built.
func (c *Cluster) program(name string) string { return filepath.Join(c.programs, name) }

// Client returns an API client with the permissions of Admin and without a rate limit.
func (c *Cluster) Client() *kubernetes.Clientset { return c.client }

// finish stops the cluster at the end of a test. It fails the test if a program ended unexpectedly, and prints logs if the test failed.
func (c *Cluster) finish(t testing.TB) {
	for _, p := range c.processes() {
		if err := p.Err(); err != nil {
			t.Errorf("%s ended by itself: %v", p, err)
		}
	}
	if t.Failed() {
		c.showLogs(t)
	}
	if err := errors.Join(c.copyLogs(t.Name()), c.haltAndRemove()); err != nil {
		t.Error(err)
	}
}

// processes returns the started processes of the control plane and of the nodes.
func (c *Cluster) processes() []*machine.Process {
	all := []*machine.Process{c.Etcd, c.APIServer, c.ControllerManager, c.Scheduler}
	for _, node := range c.Nodes {
		all = append(all, node.Containerd, node.Kubelet)
	}
	return slices.DeleteFunc(all, func(p *machine.Process) bool { return p == nil })
}

// haltAndRemove halts all machines, whose programs are killed, and removes the cluster's files and cgroups.
func (c *Cluster) haltAndRemove() error {
	for _, node := range c.Nodes {
		if node.Machine != nil {
			node.Machine.Halt()
		}
	}
	if c.control != nil {
		c.control.Halt()
	}
	if c.lock == nil {
		return nil
	}
	return errors.Join(removeStateDir(c.Dir), c.lock.Close())
}

// copyLogs copies all logs to a directory below the one that the environment variable GSHARE_CLUSTER_LOGS names, if it is set.
func (c *Cluster) copyLogs(test string) error {
	folder := os.Getenv("GSHARE_CLUSTER_LOGS")
	if folder == "" || c.Dir == "" {
		return nil
	}
	folder = filepath.Join(folder, strings.ReplaceAll(test, "/", "-")+"-"+filepath.Base(c.Dir))
	return os.CopyFS(folder, os.DirFS(filepath.Join(c.Dir, "logs")))
}

func (c *Cluster) showLogs(t testing.TB) {
	logs, _ := filepath.Glob(filepath.Join(c.Dir, "logs", "*.log")) // the pattern is well-formed
	for _, log := range logs {
		t.Logf("end of %s:\n%s", filepath.Base(log), executable.LogTail(log))
	}
}

// provision creates the directory, credentials and images of the cluster, and boots its machines with their network.
func (c *Cluster) provision(ctx context.Context) (err error) {
	if c.Dir, c.lock, err = newStateDir(); err != nil {
		return fmt.Errorf("create directory: %w", err)
	}
	for _, name := range []string{"logs", "kubernetes", "images"} {
		if err := os.Mkdir(filepath.Join(c.Dir, name), 0o755); err != nil {
			return err
		}
	}
	users := []access.User{access.Admin, access.Scheduler, access.ControllerManager}
	for index := range c.options.Nodes {
		node := newNode(c, index)
		c.Nodes = append(c.Nodes, node)
		users = append(users, access.Node(node.Name))
	}
	if c.credentials, err = access.New(c.file("kubernetes"), users, controlAddress, "127.0.0.1"); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.Config(access.Admin)); err != nil {
		return err
	}
	images := append([]Image{
		{Name: PauseImage, Files: map[string]string{"/pause": c.program("init")}, Command: "/pause", Bare: true},
		{Name: BusyboxImage},
	}, c.options.Images...)
	if c.images, err = writeImages(ctx, c.file("images"), images); err != nil {
		return err
	}
	return c.bootMachines(ctx)
}

func (c *Cluster) bootMachines(ctx context.Context) (err error) {
	if c.control, err = c.boot("control"); err != nil {
		return err
	}
	if err := createBridge(ctx, c.control); err != nil {
		return err
	}
	for _, node := range c.Nodes {
		if node.Machine, err = c.boot(node.Name); err != nil {
			return err
		}
		if err := createCgroup(node.Cgroup()); err != nil {
			return err
		}
		if err := connectNode(ctx, c.control, node); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) boot(name string) (*machine.Machine, error) {
	return machine.Boot(machine.Config{
		Name: name, Init: c.program("init"), Shared: c.Dir, Logs: filepath.Join(c.Dir, "logs"),
	})
}

// Environment variables that select another version of Kubernetes than the one that gshare is built with. Program names the program of
// test/controlplane/compat, which contains its kube-apiserver, kube-controller-manager, kube-scheduler and kubelet; etcd, kubectl and gshare's
// scheduler remain those of hyperkube. Features lists feature gates, separated by commas, to turn on in the kubelets. ServerFlags lists
// additional flags of kube-apiserver, separated by spaces.
const (
	Program     = "GSHARE_KUBERNETES"
	Features    = "GSHARE_KUBELET_FEATURES"
	ServerFlags = "GSHARE_APISERVER_FLAGS"
)

// kubernetes returns the path of the program that contains this component of Kubernetes.
func (c *Cluster) kubernetes(component string) string {
	ofGshare := component == "etcd" || component == "kube-scheduler" && c.options.SchedulerConfig == nil
	if path := os.Getenv(Program); path != "" && !ofGshare {
		return path
	}
	return c.program("hyperkube")
}

// kubeletFeatures returns the feature gates that are turned on in kubelets.
func kubeletFeatures() map[string]any {
	on := map[string]any{}
	for name := range strings.SplitSeq(os.Getenv(Features), ",") {
		if name != "" {
			on[name] = true
		}
	}
	return on
}

const pollInterval = 50 * time.Millisecond

// Pod returns a pod in the default namespace for gshare's scheduler. Its container "main" runs a command in the busybox image. It has no
// termination grace period.
func Pod(name string, command ...string) *corev1.Pod {
	no, grace := false, int64(0)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: corev1.PodSpec{
			SchedulerName:                 "gshare",
			AutomountServiceAccountToken:  &no,
			TerminationGracePeriodSeconds: &grace,
			Containers: []corev1.Container{{
				Name: "main", Image: BusyboxImage, ImagePullPolicy: corev1.PullNever, Command: command,
			}},
		},
	}
}

// WaitPod blocks until a pod of the default namespace satisfies a condition, and returns the pod.
func (c *Cluster) WaitPod(ctx context.Context, name string, wanted func(*corev1.Pod) bool) (*corev1.Pod, error) {
	var pod *corev1.Pod
	var last error
	seen := func(ctx context.Context) (bool, error) {
		pod, last = c.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		return last == nil && wanted(pod), nil // the API server may be down
	}
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, seen); err != nil {
		return nil, fmt.Errorf("wait for pod %s: %w; last: %v, %s", name, err, last, podSummary(pod))
	}
	return pod, nil
}

// podSummary returns the status of a pod for an error message.
func podSummary(pod *corev1.Pod) string {
	if pod == nil {
		return "nothing"
	}
	return fmt.Sprintf("%s on %q: %s %s %+v", pod.Status.Phase, pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message, pod.Status.ContainerStatuses)
}

// IsRunning reports whether all containers of a pod are running. It is a condition for WaitPod.
func IsRunning(pod *corev1.Pod) bool {
	for _, status := range pod.Status.ContainerStatuses {
		if status.State.Running == nil {
			return false
		}
	}
	return pod.Status.Phase == corev1.PodRunning && len(pod.Status.ContainerStatuses) == len(pod.Spec.Containers)
}
