package web

import (
	"html/template"
	"strings"

	"github.com/gshare-dev/gshare/cmd/internal/gpumap"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// maxPictures bounds the slices drawn on one page, so that browsers render it without a pause.
const maxPictures = 64

// view is the data of the page's template.
type view struct {
	Nodes    []node
	Chosen   string        // the node whose slices are drawn; empty: all nodes
	Pictures template.HTML // an SVG; gpumap escapes the names in it
	Left     int           // slices that are not drawn
}

// node is a node with GPUs.
type node struct {
	Name   string
	Slices []gpumap.Slice
}

// newView returns the view of the chosen node, or of all nodes.
func newView(nodes []node, chosen string) view {
	v := view{Nodes: nodes, Chosen: chosen}
	var slices []gpumap.Slice
	for _, n := range nodes {
		if chosen == "" || n.Name == chosen {
			slices = append(slices, n.Slices...)
		}
	}
	shown := min(len(slices), maxPictures)
	v.Left = len(slices) - shown
	var b strings.Builder
	_ = gpumap.SVG(&b, slices[:shown]) // a builder never fails
	v.Pictures = template.HTML(b.String())
	return v
}

// Shares returns the number of shares on the node.
func (n node) Shares() (sum int) {
	for _, s := range n.Slices {
		sum += len(s.Shares)
	}
	return sum
}

// Time returns the percentage of the node's SM-time that shares request.
func (n node) Time() float64 {
	var sum share.Area
	for _, s := range n.Slices {
		for _, x := range s.Shares {
			sum += x.Share.RequestArea()
		}
	}
	return percent(float64(sum), float64(len(n.Slices))*float64(share.WholeArea))
}

// Memory returns the percentage of the node's device memory that shares request.
func (n node) Memory() float64 {
	var sum, all share.Bytes
	for _, s := range n.Slices {
		all += s.MemoryTotal
		for _, x := range s.Shares {
			sum += x.Share.Memory
		}
	}
	return percent(float64(sum), float64(all))
}

// percent returns part of whole in percent, or 0 if whole is not positive.
func percent(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return 100 * part / whole
}
