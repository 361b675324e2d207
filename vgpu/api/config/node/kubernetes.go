package node

import (
	"fmt"
	"net"
	"path"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Kubernetes holds the settings of the node agent for a node of a Kubernetes cluster. Changes take effect when the agent restarts, which
// running containers do not notice. It has many fields because they are the keys of one flat section.
type Kubernetes struct {
	// NodeName is the name of this node; default $NODE_NAME.
	NodeName string `json:"nodeName,omitempty"`

	// Kubeconfig is for an agent that does not run in a pod; default is the pod's service account.
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// DevicePlugins is the directory in which the kubelet of this node registers device plugins; PodResources and Pods are its
	// sockets that list the devices of containers and the pods. Defaults are those of a kubelet with root /var/lib/kubelet.
	DevicePlugins string `json:"devicePlugins,omitempty"`
	PodResources  string `json:"podResources,omitempty"`
	Pods          string `json:"pods,omitempty"`

	// ResourceClaims lists the GPUs, by UUID or index, of which pods get shares by resource claims, as devices of driver gshare.dev, instead
	// of by gshare-scheduler and the device plugin; "all" stands for all of them. It needs tenancy: mixed. A GPU changes once no pod has
	// a share of it, and takes no new pods until then. Default: none. Plugins and PluginRegistry are the directories in which the
	// kubelet finds such drivers. Defaults are those of a kubelet with root /var/lib/kubelet.
	ResourceClaims []string `json:"resourceClaims,omitempty"`
	Plugins        string   `json:"plugins,omitempty"`
	PluginRegistry string   `json:"pluginRegistry,omitempty"`

	// CDI is a directory in which the container runtime looks for CDI files. Default /var/run/cdi.
	CDI string `json:"cdi,omitempty"`

	// Driver is the CDI file that makes devices usable in containers, with device names by UUID, as nvidia-ctk cdi generate
	// --device-name-strategy=uuid writes it. Default: containers get no device nodes.
	Driver string `json:"driver,omitempty"`

	// AllLibraries keeps the libraries of Driver for OpenCL, OpenGL and Vulkan in containers on shared devices, where nothing limits their
	// time. Default: containers on shared devices get none of them.
	AllLibraries bool `json:"allLibraries,omitempty"`

	// Hook is the path of libgshare.so. Default: none, and devices are allocated whole only. The files of model stores that lie beside it,
	// libgshare_store.so and gshare_*.py, are mounted in pods that declare weights.
	Hook string `json:"hook,omitempty"`

	// ModelStore lets pods of a namespace share the weights that they declare (annotation gshare.dev/weights): the agent runs a model store for
	// them on each slice, and the scheduler counts them once there. Default: pods that declare weights are not placed on the node.
	ModelStore bool `json:"modelStore,omitempty"`

	// Cordon lists UUIDs of devices or slices that accept no new pods; from those in Drain the pods are also evicted.
	Cordon []string `json:"cordon,omitempty"`
	Drain  []string `json:"drain,omitempty"`

	// OnDemand lists the UUIDs of GPUs in MIG mode whose instances the agent creates as pods request them, and removes when
	// idle and in the way. Instances that others created stay. Default: none; instances are used as they are.
	// Simulated devices with a list mig can be listed, too. A GPU that is also in ResourceClaims offers its instances to resource claims.
	// OnDemandProfiles lists the profiles that are offered, by default all; those that a GPU lacks are logged. A GPU of the device plugin
	// is advertised with its least capacity: with 7g among the profiles, one slice.
	OnDemand         []string `json:"onDemand,omitempty"`
	OnDemandProfiles []string `json:"onDemandProfiles,omitempty"`

	// Listen serves /metrics, /healthz and /readyz of the agent, FrontListen those of the front. Defaults 127.0.0.1:9477 and
	// 127.0.0.1:9478; "off" serves nothing.
	Listen      string `json:"listen,omitempty"`
	FrontListen string `json:"frontListen,omitempty"`

	// HealthPeriod is the interval of health checks of devices. Default 5s.
	HealthPeriod metav1.Duration `json:"healthPeriod,omitzero"`

	// Strangers is what the agent does about processes of pods that use a device without a share of it, avoid the hook, or have more memory
	// by the driver's count than their share:
	// "report" (default) by event, metric and enforcement status; "end" also terminates them; "ignore" does not look for them. New
	// shares are refused on a device that strangers use, until they have ended.
	Strangers string `json:"strangers,omitempty"`

	// WatchPeriod is the interval of checks for strangers and for devices of other device plugins (default 2s). HookGrace is how
	// long a process may use a shared device before it must be connected to the token server (default 10s).
	WatchPeriod metav1.Duration `json:"watchPeriod,omitzero"`
	HookGrace   metav1.Duration `json:"hookGrace,omitzero"`

	// ParkedHostMemoryMiB limits the host memory that parked replicas of functions keep together for what they have given back, as far as the
	// servers copy it there. One that would exceed it is not parked. Those of class swap do not count. Default 0: only the memory limit of each
	// pod counts.
	ParkedHostMemoryMiB int64 `json:"parkedHostMemoryMiB,omitempty"`

	// Swap lets pods with gshare.dev/isolation: swap hold the memory of a GPU or MIG instance in turn. Default: none are taken. Update
	// gshare-scheduler before it is set: an earlier version places no pods on such a node.
	Swap *Swap `json:"swap,omitempty"`
}

// Swap configures the memory of pods that hold a slice in turn.
type Swap struct {
	// HostMemoryMiB is how much more memory the pods on a slice may have together than the slice has. While one pod gives way to another,
	// all of it may be on the host, to the extent that the servers copy it there; the memory limits of the pods must allow for that.
	HostMemoryMiB int64 `json:"hostMemoryMiB"`

	// KeptMemoryMiB is how much device memory each of these pods may keep while another one has its turn, such as for its CUDA context. It
	// is set aside. A server that keeps more cannot be parked. Default 0.
	KeptMemoryMiB int64 `json:"keptMemoryMiB,omitempty"`
}

// The values of Strangers.
const (
	IgnoreStrangers = "ignore"
	ReportStrangers = "report"
	EndStrangers    = "end"
)

func (k *Kubernetes) setDefaults() {
	setDefault(&k.DevicePlugins, "/var/lib/kubelet/device-plugins")
	setDefault(&k.PodResources, "/var/lib/kubelet/pod-resources/kubelet.sock")
	setDefault(&k.Pods, "/var/lib/kubelet/pods-api/pods-api.sock")
	setDefault(&k.Plugins, "/var/lib/kubelet/plugins")
	setDefault(&k.PluginRegistry, "/var/lib/kubelet/plugins_registry")
	setDefault(&k.CDI, "/var/run/cdi")
	setDefault(&k.Listen, "127.0.0.1:9477")
	setDefault(&k.FrontListen, "127.0.0.1:9478")
	setDefault(&k.HealthPeriod.Duration, 5*time.Second)
	setDefault(&k.Strangers, ReportStrangers)
	setDefault(&k.WatchPeriod.Duration, 2*time.Second)
	setDefault(&k.HookGrace.Duration, 10*time.Second)
}

func (k *Kubernetes) validate() error {
	for field, value := range map[string]string{
		"devicePlugins": k.DevicePlugins, "podResources": k.PodResources, "pods": k.Pods, "cdi": k.CDI, "driver": k.Driver, "hook": k.Hook,
		"plugins": k.Plugins, "pluginRegistry": k.PluginRegistry,
	} {
		if value != "" && !path.IsAbs(value) {
			return fmt.Errorf("kubernetes.%s: %q is not an absolute path", field, value)
		}
	}
	for field, value := range map[string]string{"listen": k.Listen, "frontListen": k.FrontListen} {
		if _, _, err := net.SplitHostPort(value); err != nil && value != "off" {
			return fmt.Errorf("kubernetes.%s: %q is neither an address nor off", field, value)
		}
	}
	if k.ParkedHostMemoryMiB < 0 || k.ParkedHostMemoryMiB > 1<<30 {
		return fmt.Errorf("kubernetes.parkedHostMemoryMiB: %d is outside 0 to %d", k.ParkedHostMemoryMiB, 1<<30)
	}
	if s := k.Swap; s != nil {
		for field, mib := range map[string]int64{"hostMemoryMiB": s.HostMemoryMiB, "keptMemoryMiB": s.KeptMemoryMiB} {
			if mib < 0 || mib > 1<<30 {
				return fmt.Errorf("kubernetes.swap.%s: %d is outside 0 to %d", field, mib, 1<<30)
			}
		}
	}
	if p := k.HealthPeriod.Duration; p < 100*time.Millisecond || p > time.Hour {
		return fmt.Errorf("kubernetes.healthPeriod: %v is not between 100ms and an hour", p)
	}
	for _, p := range k.OnDemandProfiles {
		if !share.ValidProfile(p) {
			return fmt.Errorf("kubernetes.onDemandProfiles: %.40q is no MIG profile, such as 1g.10gb", p)
		}
	}
	return k.validateWatch()
}

func (k *Kubernetes) validateWatch() error {
	if !slices.Contains([]string{IgnoreStrangers, ReportStrangers, EndStrangers}, k.Strangers) {
		return fmt.Errorf("kubernetes.strangers: %q is none of ignore, report and end", k.Strangers)
	}
	if p := k.WatchPeriod.Duration; p < 100*time.Millisecond || p > time.Minute {
		return fmt.Errorf("kubernetes.watchPeriod: %v is not between 100ms and a minute", p)
	}
	if g := k.HookGrace.Duration; g < time.Second || g > time.Hour {
		return fmt.Errorf("kubernetes.hookGrace: %v is not between a second and an hour", g)
	}
	return nil
}
