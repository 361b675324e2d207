package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/release"
	"github.com/gshare-dev/gshare/node/agent"
	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/dmem"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/gpu/nvml"
	"github.com/gshare-dev/gshare/node/kubelet"
	"github.com/gshare-dev/gshare/node/modelstore"
	"github.com/gshare-dev/gshare/node/mps"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
)

// bindTime is how long the agent lingers after it has closed the node to new pods, so that pods that are already bound can start. From the
// scheduler's decision on a pod to the kubelet's allocation of its devices takes about a second on a busy machine.
const bindTime = 2 * time.Second

// serveNode runs the agent of a Kubernetes node until the context is cancelled, and returns when the agent has shut down.
func serveNode(ctx context.Context, c config.Configuration, log *slog.Logger) error {
	node, err := connect(&c, log)
	if err != nil {
		return err
	}
	defer node.pods.Close()
	records, err := kubelet.DialRecords(c.Kubernetes.PodResources, node.pods)
	if err != nil {
		return err
	}
	defer records.Close()
	source := sourceOf(c)
	onDemand, err := onDemandOf(c, source)
	if err != nil {
		return err
	}
	if onDemand != nil {
		source = onDemand
	}
	reporting, stopReporting := context.WithCancel(context.WithoutCancel(ctx)) // outlives ctx: the agent sends events and reports until it has ended
	defer stopReporting()
	a, err := agent.New(agent.Options{
		Config: c, Source: source, OnDemand: onDemand, Log: log, Pods: node.pods, Records: records,
		MPS: clusterDaemonsOf(c), Memory: memoryLimiter(c), Client: node.client, Stores: storesOf(c, log),
		Cluster: agent.NewAPIServer(reporting, node.client, node.name),
		Linger:  func(ctx context.Context) { pause(ctx, bindTime) },
	})
	if err != nil {
		return err
	}
	stop, err := listenHTTP(c.Kubernetes.Listen, a.Handler())
	if err != nil {
		return fmt.Errorf("kubernetes.listen: %w", err)
	}
	defer stop()
	go func() {
		if err := release.Announce(ctx, node.client); err != nil && ctx.Err() == nil {
			log.Warn("failed to publish version", "error", err)
		}
	}()
	return a.Run(ctx)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// connection holds the name of this Kubernetes node and the clients for its API server and kubelet.
type connection struct {
	name   string
	client kubernetes.Interface // of the API server
	pods   kubelet.Pods
}

// connect determines the name of this node and connects to its API server and kubelet.
func connect(c *config.Configuration, log *slog.Logger) (p connection, err error) {
	if c.Kubernetes.NodeName == "" {
		c.Kubernetes.NodeName = os.Getenv("NODE_NAME")
	}
	if p.name = c.Kubernetes.NodeName; p.name == "" {
		return p, cli.Usage(errors.New("kubernetes.nodeName: neither it nor NODE_NAME is set; use --standalone on a machine without Kubernetes"))
	}
	if p.client, err = clientFor(c.Kubernetes.Kubeconfig); err != nil {
		return p, cli.Usage(fmt.Errorf("kubernetes.kubeconfig: %w", err))
	}
	p.pods, err = podsOf(c.Kubernetes, p.client, log)
	return p, err
}

// podsOf returns the source of the node's pods: the kubelet's PodsAPI or, if the kubelet does not serve it, the API server. A missing socket
// shows that it does not: the kubelet creates the socket before it starts any pod, and so before the agent's.
func podsOf(c config.Kubernetes, client kubernetes.Interface, log *slog.Logger) (kubelet.Pods, error) {
	if _, err := os.Stat(c.Pods); errors.Is(err, fs.ErrNotExist) {
		log.Info("the kubelet has no PodsAPI: pods are read from the API server", "socket", c.Pods)
		return kubelet.WatchBound(client, c.NodeName), nil
	}
	return kubelet.DialPods(c.Pods)
}

func sourceOf(c config.Configuration) gpu.Source {
	if c.SimulatedDevices != "" {
		return gpu.Simulated{File: c.SimulatedDevices}
	}
	return nvml.New(library.New())
}

// memoryLimiter returns a limiter that makes the NVIDIA driver enforce device memory, or nil for simulated devices.
func memoryLimiter(c config.Configuration) *dmem.Limiter {
	if c.SimulatedDevices != "" {
		return nil
	}
	return &dmem.Limiter{}
}

func clientFor(kubeconfig string) (kubernetes.Interface, error) {
	restConfig, err := rest.InClusterConfig()
	if kubeconfig != "" {
		restConfig, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	if err != nil {
		return nil, err
	}
	restConfig.QPS, restConfig.Burst = 50, 100 // each pod that starts causes an enforcement status and an event
	return kubernetes.NewForConfig(restConfig)
}

func listenHTTP(address string, handler http.Handler) (stop func(), err error) {
	if address == "off" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	server := &http.Server{Handler: handler, ReadTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
	go func() { _ = server.Serve(listener) }()
	return func() { server.Close() }, nil
}

func daemonsOf(c config.Configuration) mps.Daemons {
	return mps.Daemons{
		Dir: filepath.Join(c.Directory, "mps"), Program: c.SimulatedMPS, Simulated: c.SimulatedDevices != "", NoNamespaces: c.MPSVersion == 2,
		Guard: guardLibrary(c.Kubernetes.Hook),
	}
}

// storesOf returns the manager of model stores, or nil if there is no driver on which they could run. If the configuration enables no stores,
// the manager ends those of an earlier agent once no pod uses them. Stores outlive the agent's container, as MPS daemons do.
func storesOf(c config.Configuration, log *slog.Logger) *modelstore.Manager {
	program, err := os.Executable()
	if !daemonsOf(c).Enabled() || err != nil {
		return nil
	}
	return modelstore.New(modelstore.Config{
		Dir: filepath.Join(c.Directory, "stores"), Grants: filepath.Join(c.Directory, "grants"), Program: program, Log: log,
		DetachedCgroup: cgroup.Detached{Mount: "/sys/fs/cgroup", Name: "gshare-stores"},
	})
}

// guardLibrary returns the path of the library that keeps clients from commanding MPS daemons, or an empty string if it is not installed. It
// looks next to the hook, next to this program, and where the archive of a release has it.
func guardLibrary(hook string) string {
	program, _ := os.Executable()
	dir := filepath.Dir(program)
	for _, place := range []string{filepath.Dir(hook), dir, filepath.Join(dir, "..", "..", "lib", "gshare")} {
		library := filepath.Join(place, "libgshare-mps.so")
		if _, err := os.Stat(library); err == nil && filepath.IsAbs(library) {
			return library
		}
	}
	return ""
}

// clusterDaemonsOf returns the manager of MPS daemons for an agent in a pod. Its daemons must survive a restart of the agent's container, and
// they serve clients in other containers.
func clusterDaemonsOf(c config.Configuration) mps.Daemons {
	d := daemonsOf(c)
	d.DetachedCgroup = cgroup.Detached{Mount: "/sys/fs/cgroup", Name: "gshare-mps"}
	d.OwnSharedMemory = true
	return d
}
