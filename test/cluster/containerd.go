package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gshare-dev/gshare/test/cluster/machine"
)

// containerdConfig configures the pause image, CDI and the CNI plugins of containerd. restrict_oom_score_adj is set because lowering a
// container's oom_score_adj may be forbidden where tests run, and then no container would start.
const containerdConfig = `version = 3
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "` + PauseImage + `"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  enable_cdi = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["` + cniPlugins + `"]
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = false
`

// networkConfig is the CNI configuration of a node: a bridge for its pods. It needs no masquerading, as the machines have routes to all
// pods.
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
	folder := n.Machine.HostPath("/etc/cni/net.d")
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
		Env:   []string{"PATH=" + n.cluster.programs + ":" + os.Getenv("PATH")}, // for the shim
		Ready: func(ctx context.Context) error { return n.dial(ctx, ContainerdSocket) },
	})
	if err != nil {
		return err
	}
	return importImages(ctx, n.Machine, n.cluster.program("ctr"), n.cluster.images)
}
