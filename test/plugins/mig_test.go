package plugins_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"github.com/gshare-dev/gshare/node/agent"
	"github.com/gshare-dev/gshare/node/cdi"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/kubelet"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/node/partition/ondemand"
	"github.com/gshare-dev/gshare/test/fake/hook"
	fakekubelet "github.com/gshare-dev/gshare/test/fake/kubelet"
	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/mig"
)

// machine has a whole GPU, a GPU with a MIG instance that an administrator created, and a GPU whose instances are created on demand.
type machine struct{ *fakemig.GPU }

func (m machine) Devices() ([]gpu.Device, error) {
	whole := gpu.Device{UUID: "GPU-w", Model: "A100", SMs: 108, Memory: 80 << 30, Minor: 0}
	made := gpu.Device{UUID: "GPU-m", Model: "A100", SMs: 108, Memory: 80 << 30, Minor: 1, MIG: true, Instances: []gpu.Instance{
		{UUID: "MIG-m", Profile: "2g.20gb", SMs: 28, Memory: 19 << 30, GPU: 5},
	}}
	onDemand := gpu.Device{UUID: "GPU-a", Model: "A100", SMs: 108, Memory: 80 << 30, Minor: 2, MIG: true}
	found, err := m.GPU.Instances()
	for _, i := range found {
		onDemand.Instances = append(onDemand.Instances, gpu.Instance{
			UUID: i.UUID, Profile: i.Profile.Name, SMs: i.Profile.SMs, Memory: 9 << 30, GPU: 10 + i.Start,
		})
	}
	return []gpu.Device{whole, made, onDemand}, err
}

func (machine) Processes() ([]gpu.Process, error) { return nil, nil }

// capabilities lists the device nodes of all possible instances: nvidia-cap<1000 x minor + 10 x GPU instance>, and for the compute instance
// the number that follows.
func capabilities() (text string) {
	for minor := range 3 {
		for gi := range 20 {
			number := 1000*minor + 10*gi
			text += fmt.Sprintf("gpu%d/gi%d/access %d\ngpu%d/gi%d/ci0/access %d\n", minor, gi, number, minor, gi, number+1)
		}
	}
	return text
}

// bulletin stands in for the API server and stores the node's inventory.
type bulletin struct {
	agent.Cluster
	mu   sync.Mutex // guards text
	text string
}

func (b *bulletin) Published(context.Context) (kube.Inventory, error) { return kube.Inventory{}, nil }
func (b *bulletin) WatchNode(context.Context, func())                 {}
func (b *bulletin) Warn(*v1.Pod, string, string)                      {}
func (b *bulletin) Notify(*v1.Pod, string, string)                    {}

func (b *bulletin) WriteEnforcement(context.Context, types.NamespacedName, types.UID, string) error {
	return nil
}

func (b *bulletin) Publish(_ context.Context, inventory string, _, _ v1.ResourceList) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = inventory
	return nil
}

func (b *bulletin) inventory() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text
}

// opened reports whether the node takes pods on every GPU. Instances of GPU-a are offered only once the agent has read its journal.
func (b *bulletin) opened() bool {
	inv, err := kube.DecodeInventory(b.inventory())
	onDemand := func(s kube.Slice) bool { return s.Device == "GPU-a" }
	closed := func(s kube.Slice) bool { return !s.Healthy }
	return err == nil && slices.ContainsFunc(inv.Slices, onDemand) && !slices.ContainsFunc(inv.Slices, closed)
}

// migNode is the machine with its agent and kubelet. The scheduler sees only its inventory and the pods bound to it.
type migNode struct {
	dir     string
	gpu     *fakemig.GPU
	kubelet *fakekubelet.Kubelet
	object  *v1.Node
	bound   []*v1.Pod
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newMIGNode(t *testing.T) *migNode {
	t.Helper()
	dir, err := os.MkdirTemp("", "gm") // short enough for a socket path
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	model, err := mig.ModelNamed("A100-80GB")
	must(t, err)
	n := &migNode{dir: dir, gpu: fakemig.New("GPU-a", model), kubelet: fakekubelet.New(dir, string(kube.ResourceVGPU))}
	for name, text := range map[string]string{
		"mig-minors": capabilities(),
		"driver.yaml": "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ncontainerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}\n" +
			"devices: [{name: GPU-w, containerEdits: {deviceNodes: [{path: /dev/nvidia0}]}}]\n",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	hook.Write(t, filepath.Join(dir, "libgshare.so"))
	must(t, n.kubelet.Start())
	t.Cleanup(n.kubelet.Kill)
	api := &bulletin{}
	n.serve(t, api)
	for end := time.Now().Add(time.Minute); !api.opened(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the agent does not offer all slices: %s", api.inventory())
		}
	}
	n.object = st.MakeNode().Name("n1").UID("uid-n1").Capacity(map[v1.ResourceName]string{"cpu": "64", "memory": "256Gi", "pods": "110"}).Obj()
	n.object.Annotations = map[string]string{kube.AnnotationInventory: api.inventory()}
	return n
}

func (n *migNode) serve(t *testing.T, api agent.Cluster) {
	t.Helper()
	model := n.gpu.Model()
	source := ondemand.New(machine{n.gpu}, []ondemand.GPU{{
		UUID: "GPU-a", Profiles: []string{"1g.10gb", "3g.40gb"}, Open: func() (*partition.Manager, *mig.Model, error) {
			manager, err := partition.Open(partition.Config{
				Device: n.gpu, UUID: "GPU-a", BootID: "b", Store: partition.File(filepath.Join(n.dir, "mig.json")),
			})
			return manager, model, err
		},
	}})
	pods, err := kubelet.DialPods(n.kubelet.Pods())
	must(t, err)
	records, err := kubelet.DialRecords(n.kubelet.PodResources(), pods)
	must(t, err)
	a, err := agent.New(agent.Options{
		Config: config.Configuration{Directory: n.dir, ContextReserveMiB: new(int64(0)), Kubernetes: config.Kubernetes{
			NodeName: "n1", DevicePlugins: n.kubelet.DevicePlugins(), CDI: filepath.Join(n.dir, "cdi"), Hook: filepath.Join(n.dir, "libgshare.so"),
			Driver: filepath.Join(n.dir, "driver.yaml"),
		}}.WithDefaults(),
		Source: source, OnDemand: source, MPS: mps.Daemons{Simulated: true}, Pods: pods, Records: records, Cluster: api,
		Log: slog.New(slog.DiscardHandler), Capabilities: cdi.Capabilities(filepath.Join(n.dir, "mig-minors")),
	})
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-ended)
		records.Close()
		pods.Close()
	})
}

// asking returns a pod that requests nearly half of a slice of the given kind, or of a whole GPU if no kind is given.
func asking(name, kind string) *v1.Pod {
	pod := st.MakePod().Namespace("team").Name(name).UID("uid-" + name).Container("image").Obj()
	pod.Spec.Containers[0].Resources.Limits = gpuPod("like", 45, 0).Spec.Containers[0].Resources.Limits
	if kind != "" {
		pod.Annotations = map[string]string{kube.AnnotationSlice: kind}
	}
	pod.ResourceVersion = "1"
	kube.Complete(pod)
	return pod
}

// schedule lets the plugins place and bind a pod, and returns the bound pod, or nil if they refuse it. The node learns only what they write.
func (n *migNode) schedule(t *testing.T, pod *v1.Pod) *v1.Pod {
	t.Helper()
	w := newWorld(t, []*v1.Node{n.object}, n.bound...)
	w.knows(t, pod)
	var binding *v1.Binding
	w.client.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		binding = action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		return true, binding, nil
	})
	state := framework.NewCycleState()
	if w.filter(t, state, pod).Len() > 0 {
		return nil
	}
	for _, status := range []*fwk.Status{
		w.RunReservePluginsReserve(t.Context(), state, pod, "n1"), w.RunBindPlugins(t.Context(), state, pod, "n1"),
	} {
		if !status.IsSuccess() {
			t.Fatal(status)
		}
	}
	bound := pod.DeepCopy()
	bound.Spec.NodeName, bound.ResourceVersion = binding.Target.Name, "2"
	if bound.Annotations == nil {
		bound.Annotations = map[string]string{}
	}
	for key, value := range binding.Annotations {
		bound.Annotations[key] = value
	}
	n.bound = append(n.bound, bound)
	return bound
}

// run does what the kubelet and the container runtime do to start the pod. It returns the UUID of the device that the pod's program sees, and
// its device nodes.
func (n *migNode) run(t *testing.T, pod *v1.Pod) (uuid string, nodes []string) {
	t.Helper()
	n.kubelet.AddPod(pod)
	name := pod.Spec.Containers[0].Name
	return n.create(t, pod, name, n.admit(t, pod, name))
}

// admit allocates a container's device ID, and returns its CDI device.
func (n *migNode) admit(t *testing.T, pod *v1.Pod, container string) (device string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	device, err := n.kubelet.Admit(ctx, pod.UID, container, 1)
	must(t, err)
	return device
}

// create starts a container, and returns the same as run.
func (n *migNode) create(t *testing.T, pod *v1.Pod, container, device string) (uuid string, nodes []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, n.kubelet.Create(ctx, pod.UID, container))
	text, err := os.ReadFile(filepath.Join(n.dir, "cdi", "gshare.dev-grant-"+strings.TrimPrefix(device, "gshare.dev/grant=")+".json"))
	must(t, err)
	var spec specs.Spec
	must(t, json.Unmarshal(text, &spec))
	edits := spec.Devices[0].ContainerEdits
	for _, node := range edits.DeviceNodes {
		nodes = append(nodes, strings.TrimPrefix(node.Path, "/dev/"))
	}
	slices.Sort(nodes)
	for _, variable := range edits.Env {
		if value, ok := strings.CutPrefix(variable, "CUDA_VISIBLE_DEVICES="); ok {
			uuid = value
		}
	}
	return uuid, nodes
}

// instance returns the device nodes of one MIG instance.
func instance(minor, gi int) []string {
	number := 1000*minor + 10*gi
	return []string{
		fmt.Sprintf("nvidia%d", minor), fmt.Sprintf("nvidia-caps/nvidia-cap%d", number), fmt.Sprintf("nvidia-caps/nvidia-cap%d", number+1), "nvidiactl",
	}
}

// TestSliceKinds: the annotation gshare.dev/slice decides on which slice a pod ends up, from the scheduler down to the device nodes of
// exactly one instance. Instances that do not exist yet are created.
func TestSliceKinds(t *testing.T) {
	n := newMIGNode(t)
	for _, c := range []struct {
		name, kind, uuid string
		nodes            []string // nil: the pod is refused
	}{
		{"whole", "", "GPU-w", []string{"nvidia0", "nvidiactl"}},
		{"whole by name", "gpu", "GPU-w", []string{"nvidia0", "nvidiactl"}},
		{"no more whole", "", "", nil},
		{"made by others", "2g.20gb", "MIG-m", instance(1, 5)},
		{"beside it", "2g.20gb", "MIG-m", instance(1, 5)},
		{"no more of that profile", "2g.20gb", "", nil},
		{"made on demand", "3g.40gb", "MIG-GPU-a-0-0", instance(2, 14)},
		{"any", "mig", "MIG-GPU-a-1-0", instance(2, 10)}, // the smallest instance, at the placement that fragments the GPU least
		{"small", "1g.10gb", "MIG-GPU-a-2-0", instance(2, 11)},
		{"not offered", "7g.80gb", "", nil},
		{"beside the first", "3g.40gb", "MIG-GPU-a-0-0", instance(2, 14)},
		{"no room beside the small ones", "3g.40gb", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := n.schedule(t, asking(strings.ReplaceAll(c.name, " ", "-"), c.kind))
			if pod == nil || c.nodes == nil {
				if (pod == nil) != (c.nodes == nil) {
					t.Errorf("%s: it is placed: %v", c.name, pod != nil)
				}
				return
			}
			slices.Sort(c.nodes)
			uuid, nodes := n.run(t, pod)
			if diff := cmp.Diff(c.nodes, nodes); diff != "" || uuid != c.uuid {
				t.Errorf("%s: on %s, want %s; nodes %s", c.name, uuid, c.uuid, diff)
			}
		})
	}
}

// staged returns a pod whose containers each request a whole slice of the given kind.
func staged(name string, kinds ...string) *v1.Pod {
	pod := asking(name, "")
	pod.Annotations = map[string]string{}
	whole := pod.Spec.Containers[0]
	whole.Resources = v1.ResourceRequirements{}
	pod.Spec.Containers = nil
	for c, kind := range kinds {
		whole.Name = fmt.Sprint("stage-", c)
		whole.Resources.Requests, whole.Resources.Limits = nil, gpuPod("like", 100, 0).Spec.Containers[0].Resources.Limits
		pod.Spec.Containers = append(pod.Spec.Containers, *whole.DeepCopy())
		pod.Annotations[kube.AnnotationContainerSlice+whole.Name] = kind
	}
	kube.Complete(pod)
	return pod
}

// TestSliceOfEachContainer: a pod whose containers request slices of different kinds gets all of them on one node, or none. Each container
// sees the device nodes of its own instance only.
func TestSliceOfEachContainer(t *testing.T) {
	type seen struct {
		UUID  string
		Nodes []string
	}
	n := newMIGNode(t)
	for _, c := range []struct {
		name  string
		kinds []string
		want  []seen // nil: the pod is refused
	}{
		{"one too many", []string{"2g.20gb", "2g.20gb"}, nil},
		{"not offered", []string{"1g.10gb", "7g.80gb"}, nil},
		{"small and large of one GPU", []string{"1g.10gb", "3g.40gb"}, []seen{{"MIG-GPU-a-0-0", instance(2, 10)}, {"MIG-GPU-a-1-0", instance(2, 14)}}},
		{"no room for both", []string{"1g.10gb", "3g.40gb"}, nil},
		{"of several GPUs", []string{"1g.10gb", "2g.20gb", "gpu"}, []seen{{"MIG-GPU-a-2-0", instance(2, 11)}, {"MIG-m", instance(1, 5)}, {"GPU-w", []string{"nvidia0", "nvidiactl"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := n.schedule(t, staged(strings.ReplaceAll(c.name, " ", "-"), c.kinds...))
			if pod == nil || c.want == nil {
				if (pod == nil) != (c.want == nil) {
					t.Errorf("it is placed: %v", pod != nil)
				}
				return
			}
			n.kubelet.AddPod(pod)
			var devices []string
			for _, container := range pod.Spec.Containers {
				devices = append(devices, n.admit(t, pod, container.Name))
			}
			var got []seen
			for i, container := range pod.Spec.Containers {
				uuid, nodes := n.create(t, pod, container.Name, devices[i])
				got = append(got, seen{uuid, nodes})
			}
			for i := range c.want {
				slices.Sort(c.want[i].Nodes)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
