package page

import (
	"html/template"
	"strings"

	"github.com/gshare-dev/gshare/cmd/internal/gpumap"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// mostPictures bounds a page; a browser draws so many at once without a pause.
const mostPictures = 64

// view is what the page shows.
type view struct {
	Nodes    []node
	Chosen   string        // the one node whose slices are drawn; empty is all
	Pictures template.HTML // an SVG, in which whatever users write is escaped
	Left     int           // slices that are not drawn
}

// node is a node with GPUs.
type node struct {
	Name   string
	Slices []gpumap.Slice
}

func viewOf(nodes []node, chosen string) view {
	v := view{Nodes: nodes, Chosen: chosen}
	var slices []gpumap.Slice
	for _, n := range nodes {
		if chosen == "" || n.Name == chosen {
			slices = append(slices, n.Slices...)
		}
	}
	shown := min(len(slices), mostPictures)
	v.Left = len(slices) - shown
	var b strings.Builder
	_ = gpumap.SVG(&b, slices[:shown]) // a builder takes everything
	v.Pictures = template.HTML(b.String())
	return v
}

// Shares is how many the node has.
func (n node) Shares() (sum int) {
	for _, s := range n.Slices {
		sum += len(s.Shares)
	}
	return sum
}

// Time is the percent of the node's SM-time that is promised.
func (n node) Time() float64 {
	var sum share.Area
	for _, s := range n.Slices {
		for _, x := range s.Shares {
			sum += x.Share.RequestArea()
		}
	}
	return percent(float64(sum), float64(len(n.Slices))*float64(share.WholeArea))
}

// Memory is the percent of the node's device memory that is promised.
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

func percent(part, whole float64) float64 {
	if whole <= 0 {
		return 0
	}
	return 100 * part / whole
}
