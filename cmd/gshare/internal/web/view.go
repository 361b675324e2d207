package web

import (
	"bytes"
	_ "embed"
	"fmt"
	"html"
	"net/url"

	"github.com/gshare-dev/gshare/cmd/internal/gpumap"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// maxPictures is the largest number of slices drawn on one page, so that browsers render it without a pause.
const maxPictures = 64

//go:embed head.html
var head []byte // up to the heading of the page

// node is a node with GPUs as the page shows it.
type node struct {
	Name   string
	Slices []gpumap.Slice
}

// render returns the HTML page: a table of the nodes, and drawings of the slices of the chosen node, or of all nodes if chosen is empty. It
// does not use html/template, which makes the linker keep every exported method of gshare's dependencies: 30 MB.
func render(nodes []node, chosen string) []byte {
	b := bytes.NewBuffer(bytes.Clone(head))
	fmt.Fprintf(b, "<p>%d nodes with GPUs.", len(nodes))
	if chosen != "" {
		fmt.Fprintf(b, " Shown: %s. <a href=\"?\">All</a>", html.EscapeString(chosen))
	}
	fmt.Fprint(b, "</p>\n<table>\n<tr><th>Node</th><th class=\"number\">Slices</th><th class=\"number\">Shares</th>"+
		"<th class=\"number\">SM-time allocated</th><th class=\"number\">Memory allocated</th></tr>\n")
	var slices []gpumap.Slice
	for _, n := range nodes {
		class := ""
		if n.Name == chosen {
			class = ` class="chosen"`
		}
		if chosen == "" || n.Name == chosen {
			slices = append(slices, n.Slices...)
		}
		fmt.Fprintf(b, "<tr%s><td><a href=\"?node=%s\">%s</a></td>", class, url.QueryEscape(n.Name), html.EscapeString(n.Name))
		const cell = `<td class="number">`
		fmt.Fprintf(b, cell+"%d</td>"+cell+"%d</td>"+cell+"%.1f %%</td>"+cell+"%.1f %%</td></tr>\n", len(n.Slices), n.shares(), n.timePercent(), n.memoryPercent())
	}
	fmt.Fprint(b, "</table>\n")
	shown := min(len(slices), maxPictures)
	if left := len(slices) - shown; left > 0 {
		fmt.Fprintf(b, "<p>%d more slices: choose a node.</p>\n", left)
	}
	_ = gpumap.SVG(b, slices[:shown]) // a buffer never fails; SVG escapes names
	fmt.Fprint(b, "\n</body>\n</html>\n")
	return b.Bytes()
}

func (n node) shares() (sum int) {
	for _, s := range n.Slices {
		sum += len(s.Shares)
	}
	return sum
}

// timePercent returns the percentage of the node's SM-time (SMs times quota) that its shares request.
func (n node) timePercent() float64 {
	var sum share.Area
	for _, s := range n.Slices {
		for _, x := range s.Shares {
			sum += x.Share.RequestArea()
		}
	}
	return percent(float64(sum), float64(len(n.Slices))*float64(share.WholeArea))
}

// memoryPercent returns the percentage of the node's GPU memory that its shares request.
func (n node) memoryPercent() float64 {
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
