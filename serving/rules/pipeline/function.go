// Package pipeline splits functions into stages and assigns the stages to free slices: FluidFaaS's pipelines over MIG
// fragments, with the corrections that docs/glossary.md lists.
//
// A Function is ranked once, offline. When an instance starts, Ranking.Assign selects the free slice for each stage. Nothing
// here changes the MIG geometry of a GPU.
package pipeline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Function is a serverless function as a graph of components. A pipeline may run it on several slices.
type Function struct {
	Name     string        `json:"name"`
	Nodes    []Node        `json:"nodes"`
	Transfer time.Duration `json:"transfer"` // time from a stage to the next, through host memory
}

// Node is one component of a function: a model with its pre- and postprocessing. It can run only on the kinds of slices on which its
// execution time was measured.
type Node struct {
	Name   string                   `json:"name"`
	After  []string                 `json:"after,omitempty"` // names of the nodes whose outputs it reads
	Memory share.Bytes              `json:"memory"`          // peak, including weights
	Times  map[string]time.Duration `json:"times"`           // of one request, by name of Kind
	// Chance is the fraction of requests that run the node; 0 means all. The latency always includes the node, whereas the
	// throughput weighs its time by the chance (U23).
	Chance share.PerMille `json:"chance,omitempty"`
}

// Limits that keep the list of partitions small, and sums of times and memory from overflowing.
const (
	MaxNodes = 12
	MaxTime  = time.Hour // of one node, and of a transfer
)

// Validate returns a *share.FieldError for the first invalid field, or nil. It rejects a function without nodes, a name that is missing,
// repeated or unknown, a cycle, and a quantity out of range.
func (f *Function) Validate() error {
	if f.Name == "" {
		return share.Invalid("name", "is empty")
	}
	if len(f.Nodes) == 0 || len(f.Nodes) > MaxNodes {
		return share.Invalid("nodes", "%d of them; want 1 to %d", len(f.Nodes), MaxNodes)
	}
	if f.Transfer < 0 || f.Transfer > MaxTime {
		return share.Invalid("transfer", "%v is outside 0 to %v", f.Transfer, MaxTime)
	}
	for i := range f.Nodes {
		if err := f.Nodes[i].validate(fmt.Sprintf("nodes[%d]", i)); err != nil {
			return err
		}
	}
	_, err := f.graph()
	return err
}

func (n *Node) validate(field string) error {
	switch {
	case n.Name == "":
		return share.Invalid(field+".name", "is empty")
	case n.Memory < 1 || n.Memory > share.MaxMemory:
		return share.Invalid(field+".memory", "%d is outside 1 to %d bytes", n.Memory, share.MaxMemory)
	case n.Chance < 0 || n.Chance > share.Whole:
		return share.Invalid(field+".chance", "%d per mille is outside 0 to %d", n.Chance, share.Whole)
	case len(n.Times) == 0:
		return share.Invalid(field+".times", "%.64q was measured on no kind of slice", n.Name)
	}
	for _, kind := range sortedKeys(n.Times) {
		if t := n.Times[kind]; t <= 0 || t > MaxTime {
			return share.Invalid(field+".times", "%v on %.64q is not above 0 and at most %v", t, kind, MaxTime)
		}
	}
	return nil
}

// expectedTime returns the mean time at the node over all requests, if a request that runs the node spends the time worst there.
func (n *Node) expectedTime(worst time.Duration) time.Duration {
	if n.Chance == 0 {
		return worst
	}
	return max(worst*time.Duration(n.Chance)/time.Duration(share.Whole), 1) // U23
}

// Whole returns the function as a single node, as it runs on one slice. It can run on the kinds of slices on which all nodes were
// measured.
func (f *Function) Whole() Node {
	whole := Node{Name: f.Name, Times: map[string]time.Duration{}}
	for _, n := range f.Nodes {
		whole.Memory += n.Memory
	}
	for kind := range f.Nodes[0].Times {
		total, everywhere := time.Duration(0), true
		for _, n := range f.Nodes {
			t, measured := n.Times[kind]
			total, everywhere = total+t, everywhere && measured
		}
		if everywhere {
			whole.Times[kind] = total
		}
	}
	return whole
}

// Kind is a kind of slice: a MIG profile, or a whole GPU.
type Kind struct {
	Name    string      `json:"name"`    // of the MIG profile, such as 1g.10gb
	Compute int         `json:"compute"` // compute slices
	Memory  share.Bytes `json:"memory"`
}

// KindOf returns the kind of slice that a MIG profile makes, with the memory that the profile's name states. The driver reports slightly
// less.
func KindOf(p *mig.Profile) Kind {
	return Kind{Name: p.Name, Compute: p.Compute, Memory: share.Bytes(p.MemoryGB) << 30}
}

// Slice is one slice of a Kubernetes node. It does not record the GPU, because the stages of a pipeline may run on slices of different
// GPUs.
type Slice struct {
	ID   string `json:"id"`
	Kind Kind   `json:"kind"`
}

func (k Kind) validate(field string) error {
	switch {
	case k.Name == "":
		return share.Invalid(field+".name", "is empty")
	case k.Compute < 1 || k.Compute > 64:
		return share.Invalid(field+".compute", "%d compute slices of %.64q is outside 1 to 64", k.Compute, k.Name)
	case k.Memory < 1 || k.Memory > share.MaxMemory:
		return share.Invalid(field+".memory", "%d of %.64q is outside 1 to %d bytes", k.Memory, k.Name, share.MaxMemory)
	}
	return nil
}

// Compare orders kinds of slices by memory, then compute slices, then name. Small slices are used first, so that large ones stay free for
// functions that need them.
func (k Kind) Compare(other Kind) int {
	return cmp.Or(cmp.Compare(k.Memory, other.Memory), cmp.Compare(k.Compute, other.Compute), cmp.Compare(k.Name, other.Name))
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
