package cluster

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// Default paths of the kubelet and of containerd on a node. Machine.HostPath converts them to paths that the test can open.
const (
	KubeletRoot      = "/var/lib/kubelet"
	DevicePlugins    = "/var/lib/kubelet/device-plugins"
	PodResources     = "/var/lib/kubelet/pod-resources/kubelet.sock"
	PodsAPI          = "/var/lib/kubelet/pods-api/pods-api.sock"
	ContainerdSocket = "/run/containerd/containerd.sock"
	CDI              = "/run/cdi" // also /var/run/cdi
)

// Node is a machine of the cluster that runs containerd and a kubelet.
type Node struct {
	Name    string
	Address string
	Machine *machine.Machine
	// Kubelet and Containerd may be killed and restarted at will.
	Kubelet, Containerd *machine.Process

	cluster *Cluster
	index   int
}

func newNode(c *Cluster, index int) *Node {
	return &Node{Name: fmt.Sprintf("node-%d", index), Address: nodeAddress(index), cluster: c, index: index}
}

// Cgroup returns the path of the node's cgroup, the parent of all cgroups of its pods, relative to the cgroup mount.
func (n *Node) Cgroup() string { return "/" + filepath.Join(filepath.Base(n.cluster.Dir), n.Name) }

// WaitReady blocks until the node is Ready and has no taints.
func (n *Node) WaitReady(ctx context.Context) error {
	var last string
	ready := func(ctx context.Context) (bool, error) {
		node, err := n.cluster.client.CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			last = err.Error()
			return false, nil
		}
		last = fmt.Sprintf("%+v, taints %v", node.Status.Conditions, node.Spec.Taints)
		return isReady(node) && len(node.Spec.Taints) == 0, nil
	}
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, ready); err != nil {
		return fmt.Errorf("wait for %s to be ready: %w; last: %s", n.Name, err, last)
	}
	return nil
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Reboot halts the node like a power failure and boots it again: /run is empty and cgroups are gone, but files on disk remain. It restarts containerd and
// the kubelet, and returns once they serve. It does not restart other programs that the test started on the node.
func (n *Node) Reboot(ctx context.Context) error {
	n.Machine.Halt()
	if err := removeCgroup(n.Cgroup()); err != nil {
		return err
	}
	if err := createCgroup(n.Cgroup()); err != nil {
		return err
	}
	if err := n.Machine.Reboot(); err != nil {
		return err
	}
	if err := connectNode(ctx, n.cluster.control, n); err != nil {
		return err
	}
	if err := n.Containerd.Restart(ctx); err != nil {
		return err
	}
	return n.Kubelet.Restart(ctx)
}

// dial returns nil if a Unix socket on the node accepts connections.
func (n *Node) dial(ctx context.Context, socket string) error {
	connection, err := new(net.Dialer).DialContext(ctx, "unix", n.Machine.HostPath(socket))
	if err != nil {
		return err
	}
	return connection.Close()
}

// containerdConfig configures the pause image, CDI and the CNI plugins of containerd. restrict_oom_score_adj is set because lowering a
// container's oom_score_adj may be forbidden where tests run, and then no container would start. The timeouts let a restarted containerd wait for the containers of a busy machine, which
// it would otherwise give up after 5 s and 2 s.
const containerdConfig = `version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "` + PauseImage + `"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  enable_cdi = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["` + cniPlugins + `"]
  conf_dir = "` + networkFolder + `"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = false
[timeouts]
  "io.containerd.timeout.shim.load" = "1m"
  "io.containerd.timeout.task.state" = "1m"
`

// networkFolder contains nothing but the CNI configuration of a node. The usual folder may contain that of a program of the real machine, such as podman,
// which would take precedence.
const networkFolder = "/etc/cni/cluster.d"

// networkConfig is the CNI configuration of a node: a bridge for its pods. It needs no masquerading, since the machines have routes to all pods.
const networkConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": "pods0", "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "%s"}]], "routes": [{"dst": "0.0.0.0/0"}]}
}]}
`

// startContainerd starts containerd on the node and imports all images.
func (n *Node) startContainerd(ctx context.Context) error {
	config := n.cluster.file("kubernetes/" + n.Name + "-containerd.toml")
	if err := os.WriteFile(config, []byte(containerdConfig), 0o600); err != nil {
		return err
	}
	folder := n.Machine.HostPath(networkFolder)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	network := fmt.Appendf(nil, networkConfig, podSubnet(n.index))
	if err := os.WriteFile(filepath.Join(folder, "pods.conflist"), network, 0o644); err != nil {
		return err
	}
	var err error
	n.Containerd, err = n.Machine.Start(ctx, machine.Program{
		Name: "containerd", Path: n.cluster.program("containerd"), Args: []string{"--config=" + config},
		Env:   []string{"PATH=" + n.cluster.programs + ":" + n.cluster.options.Runtime + ":" + os.Getenv("PATH")}, // for the shim
		Ready: func(ctx context.Context) error { return n.dial(ctx, ContainerdSocket) },
	})
	if err != nil {
		return err
	}
	return importImages(ctx, n.Machine, n.cluster.program("ctr"), n.cluster.images)
}

// startKubelet starts the kubelet and waits until the node is ready.
func (n *Node) startKubelet(ctx context.Context) error {
	c := n.cluster
	kubeconfig, err := c.writeKubeconfig(access.Node(n.Name))
	if err != nil {
		return err
	}
	config := n.kubeletConfig()
	maps.Copy(config, c.options.KubeletConfig)
	path := c.file("kubernetes/" + n.Name + ".yaml")
	if err := writeYAML(path, config); err != nil {
		return err
	}
	n.Kubelet, err = n.Machine.Start(ctx, machine.Program{
		Name: "kubelet", Path: c.kubernetes("kubelet"),
		Args: []string{"kubelet", "--config=" + path, "--kubeconfig=" + kubeconfig, "--node-ip=" + n.Address, "--v=2"},
		Ready: func(ctx context.Context) error {
			return c.checkHealth(ctx, n.Machine, "http://127.0.0.1:10248/healthz")
		},
	})
	if err != nil {
		return err
	}
	return n.WaitReady(ctx)
}

// kubeletConfig returns the KubeletConfiguration of the node. Image garbage collection and eviction for disk space are off, since the disk
// belongs to the real machine.
func (n *Node) kubeletConfig() map[string]any {
	return map[string]any{
		"apiVersion":                  "kubelet.config.k8s.io/v1beta1",
		"kind":                        "KubeletConfiguration",
		"authentication":              map[string]any{"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false}},
		"authorization":               map[string]any{"mode": "AlwaysAllow"}, // only the cluster's machines reach it
		"cgroupDriver":                "cgroupfs",
		"cgroupRoot":                  n.Cgroup(),
		"failCgroupV1":                false,
		"featureGates":                kubeletFeatures(),
		"failSwapOn":                  false,
		"containerRuntimeEndpoint":    "unix://" + ContainerdSocket,
		"evictionHard":                map[string]any{"memory.available": "50Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
		"imageGCHighThresholdPercent": 100,
		"makeIPTablesUtilChains":      false,
	}
}
