// Package routes is the pods' network of a cluster whose nodes are on one bridge, as those of kind are: a route to the pods of each other
// node is all that it takes.
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

// router is the pods' network of one node.
type router struct {
	node       string // name of this node
	podSubnet  string // addresses of all pods of the cluster, as CIDR
	configPath string // where the container runtime finds how to connect pods
	// route has packets to a range of addresses sent to a gateway, also if they went to another before.
	route func(to *net.IPNet, gateway net.IP) error
}

// Command returns the command podroutes, which sets up the pods' network of its node, and follows the nodes of the cluster. The environment
// has the node's name, NODE_NAME, and the addresses of all pods, POD_SUBNET.
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
	if endpoint := os.Getenv("CONTROL_PLANE_ENDPOINT"); endpoint != "" { // kind adds it: the service's address needs kube-proxy first
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

// connect adds the route to the pods of another node, or tells this node's container runtime how to connect its pods.
func (r *router) connect(node *v1.Node) error {
	if node.Spec.PodCIDR == "" {
		return nil // the controller manager has not given it one yet: there will be an update
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

// writeConfig writes the configuration of the network plugins: a pair of interfaces for each pod, with an address of the node's range.
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
	unfinished := filepath.Join(filepath.Dir(r.configPath), ".podroutes") // the runtime reads files as soon as they have its suffix
	if err := os.WriteFile(unfinished, []byte(content), 0o644); err != nil {
		return err
	}
	klog.InfoS("Pods of this node get addresses", "range", pods)
	return os.Rename(unfinished, r.configPath)
}

// masquerade has packets of pods to addresses outside of the cluster's pods sent as the node's: nobody else knows the way to a pod.
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
