// Package live reads the GPUs and GPU pods of a running cluster, whatever device plugin it uses, and converts them to nodes and pods with
// shares of gshare. It only lists nodes and pods.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/usage"
	"github.com/gshare-dev/gshare/vgpu/whatif"
)

// Options selects the pods to read, and holds values that API objects do not contain, such as measured use.
type Options struct {
	Namespaces []string // whose GPU pods to convert; empty: all
	Assume     usage.Assumption
	Usage      usage.Table
	Profiles   *usage.Profiles // nil: none
	GPUMemory  int64           // MiB, for nodes without a label for it
	WholeGPUs  bool            // that nodes without labels advertise whole GPUs
}

// Cluster holds the nodes and pods of a cluster, converted for packing.
type Cluster struct {
	Nodes   []whatif.Node
	Pods    []whatif.Pod // with GPUs, sorted by age, oldest first
	Notes   []string     // assumptions, and what is not counted
	Unknown []string     // what holds GPUs, or may hold some, in ways that are not known; if any, the comparison is incomplete
}

// ErrNoGPUs is returned if no node advertises a known GPU resource.
var ErrNoGPUs = errors.New("no GPUs found: no node has any of " + knownResources())

// Read lists the cluster's nodes and pods once and converts them for packing.
func Read(ctx context.Context, client kubernetes.Interface, o Options) (*Cluster, error) {
	nodes, err := cluster.Nodes(ctx, client)
	if err != nil {
		return nil, err
	}
	pods, err := cluster.Pods(ctx, client)
	if err != nil {
		return nil, err
	}
	r := newReader(o, nodes, readClaims(ctx, client, pods))
	r.readPods(pods)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case len(r.nodes) == 0 && len(r.unknown) > 0:
		return nil, fmt.Errorf("%w; not understood: %s", ErrNoGPUs, strings.Join(r.unknown, ", "))
	case len(r.nodes) == 0:
		return nil, ErrNoGPUs
	}
	r.checkNodes()
	return r.cluster(), nil
}

// reader converts nodes and pods for Read, and counts what the notes report.
type reader struct {
	options Options
	nodes   []*gpuNode
	byName  map[string]*gpuNode
	pods    []whatif.Pod

	claims claims

	waiting, foreign, measured, assumed, whole, instances, coreless, tools int
	profiled                                                               map[usage.Profiled]int // containers by the profile that applies to them
	unlike                                                                 map[usage.Match]int    // containers to which no profile applies, by how the nearest one differs
	refused, unknown                                                       []string
}

func newReader(o Options, nodes []*v1.Node, c claims) *reader {
	r := &reader{options: o, claims: c, byName: map[string]*gpuNode{}, profiled: map[usage.Profiled]int{}, unlike: map[usage.Match]int{}}
	for _, n := range nodes {
		if g := newGPUNode(n, o, c.nodes[n.Name]); g != nil {
			r.nodes = append(r.nodes, g)
			r.byName[n.Name] = g
		}
	}
	return r
}

func (r *reader) cluster() *Cluster {
	c := &Cluster{Pods: r.pods, Notes: r.caveats(), Unknown: r.unknown}
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
	add(r.coreless, "containers that state memory but no cores, assumed to need as large a part of the SMs as of the memory")
	add(r.instances, "containers with MIG instances, counted by their compute slices")
	add(r.waiting, "pending GPU pods, not counted")
	add(r.foreign, "GPU pods of other namespaces, not counted: their GPUs are taken as free")
	add(r.tools, "pods of DaemonSets that reach GPUs without requesting any, taken for tools of the node, not counted")
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
