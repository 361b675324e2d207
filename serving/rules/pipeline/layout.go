package pipeline

// Layout says which nodes of a function run on which slices. gshare's Python module run reads it.
type Layout struct {
	Version  int         `json:"version"` // LayoutVersion
	Function string      `json:"function"`
	Stages   [][]LaidOut `json:"stages"` // by stage and segment
}

// LaidOut holds the nodes of one process, in the order of execution, and the slice that the process sees.
type LaidOut struct {
	Nodes []string `json:"nodes"`
	Slice string   `json:"slice"` // Slice.ID, the value of CUDA_VISIBLE_DEVICES
}

// LayoutVersion is the version of the layouts that this package writes.
const LayoutVersion = 1

// Layout returns an assignment from Assign or Monolithic as a layout, with the names of its nodes.
func (r *Ranking) Layout(a Assignment) Layout {
	l := Layout{Version: LayoutVersion, Function: r.function.Name}
	for s, stage := range a.Partition.Stages {
		var laid []LaidOut
		for i, segment := range stage {
			out := LaidOut{Slice: a.Slices[s][i].ID}
			for _, n := range segment {
				out.Nodes = append(out.Nodes, r.function.Nodes[n].Name)
			}
			laid = append(laid, out)
		}
		l.Stages = append(l.Stages, laid)
	}
	return l
}
