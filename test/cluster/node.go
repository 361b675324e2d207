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

// Where things are on a node: the programs' own defaults. Machine.Path makes them paths of the test.
const (
	KubeletRoot      = "/var/lib/kubelet"
	DevicePlugins    = "/var/lib/kubelet/device-plugins"
	PodResources     = "/var/lib/kubelet/pod-resources/kubelet.sock"
	PodsAPI          = "/var/lib/kubelet/pods-api/pods-api.sock"
	ContainerdSocket = "/run/containerd/containerd.sock"
	CDI              = "/run/cdi" // also /var/run/cdi
)

// Node is a machine with containerd and a kubelet.
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

// Cgroup returns the cgroup of the node, above its kubelet's, in every hierarchy.
func (n *Node) Cgroup() string { return "/" + filepath.Join(filepath.Base(n.cluster.Dir), n.Name) }

// WaitReady returns when the API server says that the node is ready and no taint keeps pods away.
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

// Reboot ends everything on the node at once and starts it again, as a power cut does: /run is empty, cgroups are
// gone, disks are kept. What the test itself started on the node is not started again. It returns when the kubelet
// serves.
func (n *Node) Reboot(ctx context.Context) error {
	n.Machine.Halt()
	if err := removeCgroup(n.Cgroup()); err != nil {
		return err
	}
	if err := makeCgroup(n.Cgroup()); err != nil {
		return err
	}
	if err := n.Machine.Reboot(); err != nil {
		return err
	}
	if err := connect(ctx, n.cluster.control, n); err != nil {
		return err
	}
	if err := n.Containerd.Restart(ctx); err != nil {
		return err
	}
	return n.Kubelet.Restart(ctx)
}

// dial returns nil if something listens on the node's socket.
func (n *Node) dial(ctx context.Context, socket string) error {
	connection, err := new(net.Dialer).DialContext(ctx, "unix", n.Machine.Path(socket))
	if err != nil {
		return err
	}
	return connection.Close()
}
