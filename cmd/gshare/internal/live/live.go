// Package live reads the GPUs and GPU pods of a running cluster, whatever plugin hands the GPUs out, and says what gshare
// would be asked for in their place. It lists nodes and pods and does nothing else.
package live

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/usage"
	"github.com/gshare-dev/gshare/vgpu/whatif"
)

// Options say what to read, and what to take for granted where the cluster does not say it.
type Options struct {
	Namespaces []string // whose GPU pods count; empty is all
	Assume     usage.Assumption
	Usage      usage.Table
	GPUMemory  int64 // MiB, for nodes that do not publish it
}

// Cluster is what was read.
type Cluster struct {
	Nodes []whatif.Node
	Pods  []whatif.Pod // those that hold GPUs, the oldest first
	Notes []string     // what the figures leave out or take for granted
}

// ErrNoGPUs: no node has GPUs that this package knows.
var ErrNoGPUs = errors.New("no node of the cluster has GPUs: none advertises " + knownResources())

// Read lists the nodes and pods once.
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

// reader collects what was found.
type reader struct {
	options Options
	nodes   []*gpuNode
	byName  map[string]*gpuNode
	pods    []whatif.Pod

	waiting, claims, foreign, measured, assumed, whole, instances int
	refused                                                       []string
}

func newReader(o Options, nodes []*v1.Node) *reader {
	r := &reader{options: o, byName: map[string]*gpuNode{}}
	for _, n := range nodes {
		if g := newGPUNode(n, o.GPUMemory); g != nil {
			r.nodes = append(r.nodes, g)
			r.byName[n.Name] = g
		}
	}
	return r
}

func (r *reader) cluster() *Cluster {
	c := &Cluster{Pods: r.pods, Notes: r.notes()}
	for _, n := range r.nodes {
		c.Nodes = append(c.Nodes, n.Node)
	}
	return c
}

func (r *reader) notes() []string {
	var notes []string
	add := func(n int, text string) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf("%s: %d", text, n))
		}
	}
	add(r.assumed, "containers with one whole GPU and no measure of its use, for which "+r.options.Assume.String()+" is assumed")
	add(r.measured, "containers that count with the use that was measured")
	add(r.whole, "containers that keep whole GPUs, because they hold several or other makers' GPUs")
	add(r.instances, "containers with MIG instances, which hold and get as much of a GPU as they have compute slices")
	add(r.waiting, "GPU pods that wait for a node and are not counted")
	add(r.foreign, "GPU pods of other namespaces, whose GPUs count as free")
	add(r.claims, "pods with resource claims, whose devices are not counted")
	add(r.guessedMemory(), fmt.Sprintf("nodes that do not publish the memory of a GPU, for which %d MiB is assumed", r.options.GPUMemory))
	for _, text := range r.refused {
		notes = append(notes, "counted with whole GPUs: "+text)
	}
	return notes
}

func (r *reader) guessedMemory() (n int) {
	for _, g := range r.nodes {
		if g.guessed {
			n++
		}
	}
	return n
}
