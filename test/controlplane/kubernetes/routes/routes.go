// Package routes implements the pod network of a cluster whose nodes are on one bridge, as kind's are. There, each node needs only a route
// to the pods of every other node.
package routes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/vishvananda/netlink"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// router sets up the pod network of one node.
type router struct {
	node       string // name of this node
	podSubnet  string // CIDR of the addresses of all pods of the cluster
	configPath string // CNI configuration file that the container runtime reads
	// route routes packets for a range of addresses to a gateway, and replaces an earlier route for that range.
	route func(to *net.IPNet, gateway net.IP) error
}

// Command returns the command podroutes, which sets up the pod network of its node and follows changes of the cluster's nodes. It reads the
// node's name from the environment variable NODE_NAME, and the CIDR of all pods from POD_SUBNET.
func Command() *cobra.Command {
	r := router{
		node: os.Getenv("NODE_NAME"), podSubnet: os.Getenv("POD_SUBNET"), configPath: "/etc/cni/net.d/10-podroutes.conflist",
		route: func(to *net.IPNet, gateway net.IP) error {
			return netlink.RouteReplace(&netlink.Route{Dst: to, Gw: gateway})
		},
	}
	return &cobra.Command{
		Use:          "podroutes",
		Short:        "Connect the pods of this node with those of other nodes on the same network",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
			defer stop()
			return r.run(ctx)
		},
	}
}

func (r *router) run(ctx context.Context) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	if endpoint := os.Getenv("CONTROL_PLANE_ENDPOINT"); endpoint != "" { // set by kind; the address of the service kubernetes works only once kube-proxy runs
		config.Host = "https://" + endpoint
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := r.masquerade(ctx); err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	changed := func(object any) {
		if err := r.connect(object.(*v1.Node)); err != nil {
			klog.ErrorS(err, "Cannot connect the pods of a node")
		}
	}
	_, err = factory.Core().V1().Nodes().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: changed, UpdateFunc: func(_, now any) { changed(now) },
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// connect adds a route to the pods of another node. For this node, it configures how the container runtime connects pods instead.
func (r *router) connect(node *v1.Node) error {
	if node.Spec.PodCIDR == "" {
		return nil // the controller manager has not assigned a pod CIDR yet; an update will follow
	}
	if node.Name == r.node {
		return r.writeConfig(node.Spec.PodCIDR)
	}
	_, pods, err := net.ParseCIDR(node.Spec.PodCIDR)
	if err != nil {
		return fmt.Errorf("node %s: %w", node.Name, err)
	}
	for _, address := range node.Status.Addresses {
		if gateway := net.ParseIP(address.Address).To4(); address.Type == v1.NodeInternalIP && gateway != nil {
			if err := r.route(pods, gateway); err != nil {
				return fmt.Errorf("add a route to %s by %s: %w", pods, gateway, err)
			}
			return nil
		}
	}
	return nil
}

// writeConfig writes the CNI configuration: a veth pair for each pod, with an address of the node's range.
func (r *router) writeConfig(pods string) error {
	content := fmt.Sprintf(`{
  "cniVersion": "0.4.0",
  "name": "podroutes",
  "plugins": [
    {
      "type": "ptp",
      "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam-state", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": %q}]]}
    },
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`, pods)
	if now, err := os.ReadFile(r.configPath); err == nil && string(now) == content {
		return nil
	}
	unfinished := filepath.Join(filepath.Dir(r.configPath), ".podroutes") // the runtime reads a file as soon as it has the right suffix
	if err := os.WriteFile(unfinished, []byte(content), 0o644); err != nil {
		return err
	}
	klog.InfoS("Pods of this node get addresses", "range", pods)
	return os.Rename(unfinished, r.configPath)
}

// masquerade rewrites the source address of packets from pods to the outside of the pod network to the node's address, since nobody outside
// has a route to a pod.
func (r *router) masquerade(ctx context.Context) error {
	rule := []string{"POSTROUTING", "--source", r.podSubnet, "!", "--destination", r.podSubnet, "--jump", "MASQUERADE"}
	err := exec.CommandContext(ctx, "iptables", append([]string{"--wait", "--table", "nat", "--check"}, rule...)...).Run()
	var exit *exec.ExitError
	if err == nil || !errors.As(err, &exit) {
		return err
	}
	out, err := exec.CommandContext(ctx, "iptables", append([]string{"--wait", "--table", "nat", "--append"}, rule...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("iptables: %w: %s", err, out)
	}
	return nil
}
