package cluster

import (
	"context"
	"maps"

	"github.com/gshare-dev/gshare/test/cluster/machine"
	"github.com/gshare-dev/gshare/test/controlplane/access"
)

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
		Name: "kubelet", Path: c.program("hyperkube"),
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
		"failSwapOn":                  false,
		"containerRuntimeEndpoint":    "unix://" + ContainerdSocket,
		"evictionHard":                map[string]any{"memory.available": "50Mi", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%"},
		"imageGCHighThresholdPercent": 100,
		"makeIPTablesUtilChains":      false,
	}
}
