package cluster

import (
	"os"
	"strings"
)

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
