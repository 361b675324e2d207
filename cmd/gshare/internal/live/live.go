// Package live reads the GPUs and GPU pods of a running cluster, whatever device plugin it uses, and converts them to nodes and pods with
// shares of gshare. It only lists nodes and pods.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/usage"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/whatif"
)

// Options selects the pods to read, and holds values that API objects do not contain, such as measured use.
type Options struct {
	Namespaces []string // whose GPU pods to convert; empty: all
	Assume     usage.Assumption
	Usage      usage.Table
	Profiles   *usage.Profiles // nil: none
	GPUMemory  int64           // MiB, for nodes without a label for it
}

// Cluster holds the nodes and pods of a cluster, converted for packing.
type Cluster struct {
	Nodes []whatif.Node
	Pods  []whatif.Pod // with GPUs, sorted by age, oldest first
	Notes []string     // assumptions, and what is not counted
}

// ErrNoGPUs is returned if no node advertises a known GPU resource.
var ErrNoGPUs = errors.New("no GPUs found: no node has any of " + knownResources())

// Read lists the cluster's nodes and pods once and converts them for packing.
func Read(ctx context.Context, client kubernetes.Interface, o Options) (*Cluster, error) {
	nodes, err := cluster.Nodes(ctx, client)
	if err != nil {
		return nil, err
	}
	r := newReader(o, nodes)
	if len(r.nodes) == 0 {
		return nil, ErrNoGPUs
	}
	pods, err := cluster.Pods(ctx, client)
	if err != nil {
		return nil, err
	}
	r.readPods(pods)
	return r.cluster(), nil
}

// reader converts nodes and pods for Read, and counts what the notes report.
type reader struct {
	options Options
	nodes   []*gpuNode
	byName  map[string]*gpuNode
	pods    []whatif.Pod

	waiting, claims, foreign, measured, assumed, whole, instances int
	profiled                                                      map[usage.Profiled]int // containers by the profile that applies to them
	unlike                                                        map[usage.Match]int    // containers to which no profile applies, by how the nearest one differs
	refused                                                       []string
}

func newReader(o Options, nodes []*v1.Node) *reader {
	r := &reader{options: o, byName: map[string]*gpuNode{}, profiled: map[usage.Profiled]int{}, unlike: map[usage.Match]int{}}
	for _, n := range nodes {
		if g := newGPUNode(n, o.GPUMemory); g != nil {
			r.nodes = append(r.nodes, g)
			r.byName[n.Name] = g
		}
	}
	return r
}

func (r *reader) cluster() *Cluster {
	c := &Cluster{Pods: r.pods, Notes: r.caveats()}
	for _, n := range r.nodes {
		c.Nodes = append(c.Nodes, n.Node)
	}
	return c
}

// caveats returns the caveats of the conversion, such as the number of pods with an assumed use, for display.
func (r *reader) caveats() []string {
	var notes []string
	add := func(n int, text string) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf("%s: %d", text, n))
		}
	}
	add(r.assumed, "containers with one whole GPU and unknown use, assumed to need "+r.options.Assume.String())
	add(r.measured, "containers with measured use")
	for _, p := range slices.SortedFunc(maps.Keys(r.profiled), func(a, b usage.Profiled) int { return cmp.Compare(a.Profile, b.Profile) }) {
		add(r.profiled[p], "containers with one whole GPU, counted by "+p.String())
	}
	add(r.unlike[usage.OtherGPU], "of those assumed, containers with the image of a GPUProfile of another model of GPU, or on a node without the label "+labelProduct)
	add(r.unlike[usage.OtherCommand], "of those assumed, containers with the image of a GPUProfile of another command")
	add(r.options.Profiles.Usable()-len(r.profiled), "GPUProfiles of which no container was counted")
	notes = append(notes, r.options.Profiles.Notes()...)
	add(r.whole, "containers that keep whole GPUs, as they hold several, or GPUs of other vendors")
	add(r.instances, "containers with MIG instances, counted by their compute slices")
	add(r.waiting, "pending GPU pods, not counted")
	add(r.foreign, "GPU pods of other namespaces, not counted: their GPUs are taken as free")
	add(r.claims, "pods with resource claims, whose devices are not counted")
	add(r.nodesWithAssumedMemory(), fmt.Sprintf("nodes without a label for GPU memory, assumed to be %d MiB", r.options.GPUMemory))
	for _, text := range r.refused {
		notes = append(notes, "counted with whole GPUs: "+text)
	}
	return notes
}

// nodesWithAssumedMemory returns the number of nodes whose GPU memory had to be assumed, because no label states it.
func (r *reader) nodesWithAssumedMemory() (n int) {
	for _, g := range r.nodes {
		if g.guessed {
			n++
		}
	}
	return n
}

// heldGPUs returns how many of the node's physical GPUs, as a fractional number, the pod occupies today.
func (g *gpuNode) heldGPUs(pod *v1.Pod) packing.MilliGPU {
	if kube.RequestsShare(pod) {
		return g.gpusHeldByShares(pod)
	}
	var sum packing.MilliGPU
	for c := range longRunning(pod) {
		devices, profile, _ := devicesHeldBy(c)
		sum += packing.MilliGPU(devices) * g.gpuFraction(c, profile)
	}
	return sum
}

// gpuFraction returns the fraction of a physical GPU that one device of a container's device plugin is.
func (g *gpuNode) gpuFraction(c *v1.Container, profile string) packing.MilliGPU {
	if profile == "" {
		profile = g.profile
	}
	if profile != "" {
		return migFraction(profile)
	}
	if memory, cores, ok := sizeRequestedBy(c); ok {
		return min(packing.WholeGPU, max(1, packing.MilliGPU(cores)*10, packing.MilliGPU(memory)*packing.WholeGPU/packing.MilliGPU(g.memory)))
	}
	return packing.WholeGPU / packing.MilliGPU(g.replicas)
}

// countSlices adds the shares in a pod's gshare placement to the number of shares on each GPU.
func (r *reader) countSlices(pod *v1.Pod) {
	if node := r.byName[pod.Spec.NodeName]; node != nil {
		for _, device := range node.devicesOf(pod) {
			node.inUse[device]++
		}
	}
}

// gpusHeldByShares returns how many physical GPUs a pod's shares occupy. Each GPU is divided evenly among its shares, so that they add up to
// one.
func (g *gpuNode) gpusHeldByShares(pod *v1.Pod) packing.MilliGPU {
	var sum packing.MilliGPU
	for _, device := range g.devicesOf(pod) {
		sum += packing.WholeGPU / packing.MilliGPU(g.inUse[device])
	}
	return sum
}

// devicesOf returns, for each vGPU in a pod's placement, the GPU that it is on.
func (g *gpuNode) devicesOf(pod *v1.Pod) (devices []string) {
	placement, _, err := kube.PlacementOf(pod)
	if err != nil || kube.Ended(pod) {
		return nil
	}
	for _, c := range placement.Containers {
		for _, v := range c.VGPUs {
			if device, ok := g.devices[v.Slice]; ok {
				devices = append(devices, device)
			}
		}
	}
	return devices
}

// longRunning yields the containers of a pod that run as long as the pod: its main containers and sidecars. These reuse GPUs that the other
// init containers requested.
func longRunning(pod *v1.Pod) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for i := range pod.Spec.InitContainers {
			c := &pod.Spec.InitContainers[i]
			if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways && !yield(c) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i]) {
				return
			}
		}
	}
}

// holdsGPU reports whether a pod requests a GPU, a fraction of one, or a MIG instance.
func holdsGPU(pod *v1.Pod) bool {
	if kube.RequestsShare(pod) {
		return true
	}
	for c := range longRunning(pod) {
		if gpus, profile, _ := devicesHeldBy(c); gpus > 0 || profile != "" {
			return true
		}
	}
	return false
}

// devicesHeldBy returns the number of GPU devices that a container requests, their MIG profile if they are MIG instances, and whether they are
// NVIDIA's, which gshare can share.
func devicesHeldBy(c *v1.Container) (devices int64, profile string, nvidia bool) {
	limits := c.Resources.Limits
	for name, q := range limits {
		if p, ok := strings.CutPrefix(string(name), nvidiaMIG); ok && q.Value() > 0 && (profile == "" || p < profile) {
			devices, profile = q.Value(), p
		}
	}
	if profile != "" {
		return devices, profile, true
	}
	for _, name := range []v1.ResourceName{nvidiaGPU, nvidiaShared, sizeResources[1].count} {
		devices += quantityOf(limits, name)
	}
	if devices > 0 {
		return devices, "", true
	}
	for _, name := range otherVendors {
		devices += quantityOf(limits, name)
	}
	return devices, "", false
}

// sizeRequestedBy returns the memory (MiB) and the cores (percent) that a container requests of each GPU, or false if it requests neither.
func sizeRequestedBy(c *v1.Container) (memory, cores int64, ok bool) {
	for _, s := range sizeResources {
		if quantityOf(c.Resources.Limits, s.count) > 0 {
			memory, cores = quantityOf(c.Resources.Limits, s.memory), quantityOf(c.Resources.Limits, s.cores)
			return memory, cores, memory > 0 || cores > 0
		}
	}
	return 0, 0, false
}
