package cluster

import (
	"context"
	"fmt"
	"net"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/test/cluster/machine"
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

// Reboot halts the node like a power failure and boots it again: /run is empty and cgroups are gone, but files on disk remain. It restarts
// containerd and the kubelet, and returns when they serve. Other programs that the test started on the node are not restarted.
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
