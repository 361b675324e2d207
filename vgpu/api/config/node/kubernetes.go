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
	// NodeName is the name of this node. Default: the value of $NODE_NAME.
	NodeName string `json:"nodeName,omitempty"`

	// Kubeconfig is a kubeconfig file for an agent that does not run in a pod. Default: none, the service account of the pod.
	Kubeconfig string `json:"kubeconfig,omitempty"`

	// DevicePlugins is the directory in which the kubelet finds device plugins. Default: /var/lib/kubelet/device-plugins.
	DevicePlugins string `json:"devicePlugins,omitempty"`

	// PodResources is the socket of the kubelet that lists the devices of containers. Default: /var/lib/kubelet/pod-resources/kubelet.sock.
	PodResources string `json:"podResources,omitempty"`

	// Pods is the socket of the kubelet that lists the pods of this node. Default: /var/lib/kubelet/pods-api/pods-api.sock.
	Pods string `json:"pods,omitempty"`

	// ResourceClaims lists the GPUs, by UUID or index, that are offered to resource claims as devices of driver gshare.dev, and no longer through
	// gshare-scheduler and the device plugin. "all" stands for all GPUs. It needs tenancy: mixed. A GPU that pods have shares of changes over once
	// these have ended, and gets no new pods until then. It is Alpha: see docs/feature-gates.md. Default: none.
	ResourceClaims []string `json:"resourceClaims,omitempty"`

	// Plugins is the directory for the sockets of drivers of resource claims. Default: /var/lib/kubelet/plugins.
	Plugins string `json:"plugins,omitempty"`

	// PluginRegistry is the directory in which the kubelet finds drivers of resource claims. Default: /var/lib/kubelet/plugins_registry.
	PluginRegistry string `json:"pluginRegistry,omitempty"`

	// CDI is a directory in which the container runtime looks for files of the Container Device Interface. Default: /var/run/cdi.
	CDI string `json:"cdi,omitempty"`

	// Driver is the file of the Container Device Interface that makes GPUs usable in containers, with devices named by UUID, as nvidia-ctk cdi
	// generate --device-name-strategy=uuid writes it. Default: none, containers get no device nodes.
	Driver string `json:"driver,omitempty"`

	// AllLibraries also mounts the driver's libraries for OpenCL, OpenGL and Vulkan in containers on shared devices. What a program does through
	// them is not limited in time. Default: false.
	AllLibraries bool `json:"allLibraries,omitempty"`

	// Hook is the path of libgshare.so. The files of model stores beside it, libgshare_store.so and gshare_*.py, are mounted in pods that declare
	// weights. Default: none, pods get whole devices only.
	Hook string `json:"hook,omitempty"`

	// ModelStore lets pods of a namespace share the weights that they declare with the annotation gshare.dev/weights. The agent runs a model store
	// for them on each slice, and the scheduler counts the weights once there. It is Alpha: see docs/feature-gates.md. Default: false, pods that
	// declare weights are not placed on the node.
	ModelStore bool `json:"modelStore,omitempty"`

	// Cordon lists the UUIDs of devices and slices that get no new pods. Default: none.
	Cordon []string `json:"cordon,omitempty"`

	// Drain lists the UUIDs of devices and slices that get no new pods, and whose pods are evicted. Default: none.
	Drain []string `json:"drain,omitempty"`

	// OnDemand lists the UUIDs of GPUs in MIG mode on which the agent creates instances as pods request them. It removes its instances when they
	// are idle and in the way, and leaves those of others. Simulated devices with a list mig can be listed, too. A GPU that is also in
	// ResourceClaims offers its instances to resource claims. It is Alpha: see docs/feature-gates.md. Default: none, instances are used as they are.
	OnDemand []string `json:"onDemand,omitempty"`

	// OnDemandProfiles lists the profiles of the instances that the agent may create; those that a GPU lacks are logged. The device plugin
	// advertises a GPU with the least capacity that it can have: with 7g among the profiles, one slice. Default: all profiles.
	OnDemandProfiles []string `json:"onDemandProfiles,omitempty"`

	// Listen is the address at which the agent serves /metrics, /healthz and /readyz, or "off". Default: 127.0.0.1:9477.
	// The kubelet probes the agent there: with another port, an address other than all or loopback, or "off", patch the probes of the DaemonSet.
	Listen string `json:"listen,omitempty"`

	// ProxyListen is the address at which the proxy serves the same, or "off". Default: 127.0.0.1:9478. The same holds
	// for its probes.
	ProxyListen string `json:"proxyListen,omitempty"`

	// HealthPeriod is the time between two health checks of a device. Default: 5s.
	HealthPeriod metav1.Duration `json:"healthPeriod,omitzero"`

	// UnmanagedProcesses says what the agent does about processes of pods that use a device without having a share of it, that avoid the hook, or that have
	// more memory by the driver's count than their share. "report" writes an event, a metric and the enforcement status, "end" also terminates the
	// processes, "ignore" does not look for them. A device that such processes use gets no new shares until they have ended. Default: report.
	UnmanagedProcesses string `json:"unmanagedProcesses,omitempty"`

	// WatchPeriod is the time between two searches for such processes and for devices that other device plugins have given out. Default: 2s.
	WatchPeriod metav1.Duration `json:"watchPeriod,omitzero"`

	// HookGrace is how long a process may use a shared device before it must be connected to the token server. Default: 10s.
	HookGrace metav1.Duration `json:"hookGrace,omitzero"`

	// ParkedHostMemoryMiB is the maximum of the host memory that parked replicas of functions take together for the device memory that they have
	// given back, where their servers copy it to the host. A replica that would exceed it is not parked. Replicas of class swap do not count.
	// Default: 0, only the memory limits of the pods apply.
	ParkedHostMemoryMiB int64 `json:"parkedHostMemoryMiB,omitempty"`

	// Swap allows pods with gshare.dev/isolation: swap, which hold the memory of a GPU or MIG instance in turn. Update gshare-scheduler before you
	// set it: earlier versions place no pods on such a node. It is Alpha: see docs/feature-gates.md. Default: none, the node gets no such pods.
	Swap *Swap `json:"swap,omitempty"`
}

// Swap configures the memory of pods that hold a slice in turn.
type Swap struct {
	// HostMemoryMiB is by how much the memory of the pods on a slice may exceed that of the slice. While one pod gives way to another, that much
	// may be in host memory, where the servers copy it there, and the memory limits of the pods must have room for it.
	HostMemoryMiB int64 `json:"hostMemoryMiB"`

	// KeptMemoryMiB is how much device memory each of these pods may keep while another one has its turn, for example for its CUDA context. It is
	// set aside. A server that keeps more cannot be parked. Default: 0.
	KeptMemoryMiB int64 `json:"keptMemoryMiB,omitempty"`
}

// The values of UnmanagedProcesses.
const (
	IgnoreUnmanaged = "ignore"
	ReportUnmanaged = "report"
	EndUnmanaged    = "end"
)

func (k *Kubernetes) setDefaults() {
	setDefault(&k.DevicePlugins, "/var/lib/kubelet/device-plugins")
	setDefault(&k.PodResources, "/var/lib/kubelet/pod-resources/kubelet.sock")
	setDefault(&k.Pods, "/var/lib/kubelet/pods-api/pods-api.sock")
	setDefault(&k.Plugins, "/var/lib/kubelet/plugins")
	setDefault(&k.PluginRegistry, "/var/lib/kubelet/plugins_registry")
	setDefault(&k.CDI, "/var/run/cdi")
	setDefault(&k.Listen, "127.0.0.1:9477")
	setDefault(&k.ProxyListen, "127.0.0.1:9478")
	setDefault(&k.HealthPeriod.Duration, 5*time.Second)
	setDefault(&k.UnmanagedProcesses, ReportUnmanaged)
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
	for field, value := range map[string]string{"listen": k.Listen, "proxyListen": k.ProxyListen} {
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
	if !slices.Contains([]string{IgnoreUnmanaged, ReportUnmanaged, EndUnmanaged}, k.UnmanagedProcesses) {
		return fmt.Errorf("kubernetes.unmanagedProcesses: %q is none of ignore, report and end", k.UnmanagedProcesses)
	}
	if p := k.WatchPeriod.Duration; p < 100*time.Millisecond || p > time.Minute {
		return fmt.Errorf("kubernetes.watchPeriod: %v is not between 100ms and a minute", p)
	}
	if g := k.HookGrace.Duration; g < time.Second || g > time.Hour {
		return fmt.Errorf("kubernetes.hookGrace: %v is not between a second and an hour", g)
	}
	return nil
}
