package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/pipeline"
	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// readNode returns a component of a function with the execution times of its table, and its time on the smallest slice that holds it.
func (s *Spec) readNode(f *FunctionSpec, at int, open func(string) (string, error)) (pipeline.Node, time.Duration, error) {
	n := &f.Nodes[at]
	node := pipeline.Node{
		Name: n.Name, After: n.After, Memory: share.Bytes(n.MemoryMiB) * share.MiB, Chance: n.Chance, Times: map[string]time.Duration{},
	}
	if n.After == nil && at > 0 {
		node.After = []string{f.Nodes[at-1].Name}
	}
	model, err := mig.ModelNamed(s.MIG.Model)
	if err != nil {
		return node, 0, share.Invalid("mig.model", "%v", err)
	}
	if n.MemoryMiB < 1 || n.MemoryMiB > int64(share.MaxMemory/share.MiB) {
		return node, 0, share.Invalid("memoryMiB", "%d is outside 1 to %d", n.MemoryMiB, share.MaxMemory/share.MiB)
	}
	text, err := open(n.Table)
	if err != nil {
		return node, 0, err
	}
	rows, err := ReadSlices(text)
	if err != nil {
		return node, 0, profile.WithinField("table", err)
	}
	slowest := time.Duration(0)
	for _, row := range rows {
		for p := range model.Profiles {
			if k := pipeline.KindOf(&model.Profiles[p]); n.matches(row, &model.Profiles[p]) && k.Memory >= node.Memory {
				node.Times[k.Name] = row.Takes
				slowest = max(slowest, row.Takes)
			}
		}
	}
	if len(node.Times) == 0 {
		return node, 0, share.Invalid("batch", "%s has no batch of %d on a slice with %d MiB", n.Table, n.Batch, n.MemoryMiB)
	}
	return node, slowest, nil
}

// matches reports whether a row of the table has the component's batch size and is for a MIG profile on which the component runs.
// Profiles with media engines never match.
func (n *NodeSpec) matches(row SliceTime, p *mig.Profile) bool {
	return row.Batch == n.Batch && row.Compute == p.Compute && !p.Media && !slices.Contains(n.NotOn, p.Name)
}
