package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/gpumap"
	"github.com/gshare-dev/gshare/cmd/internal/mapping"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

var _ = inCluster.add(mapCommand)

func mapCommand() *cobra.Command {
	var flags cluster.Flags
	var format output.Format
	var svg string
	cmd := &cobra.Command{
		Use: "map [NODE]", Short: "Draw the GPUs of a cluster or the shares on a node",
		Long: "Draw the GPUs of a cluster, one character each, by how much of their SM-time is requested.\n\n" +
			"With NODE, draw the window of each of its slices: time from left to right, SMs from bottom to top, a block for each share.\n" +
			"Slices that are packed as rectangles show the rectangles. --svg writes the windows of all slices, or of those of NODE, to a file.",
		Example: "  gshare map\n  gshare map gpu-node-1\n  gshare map gpu-node-1 --svg node.svg",
		Args:    cli.AtMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.Connect()
			if err != nil {
				return cli.Usage(err)
			}
			node := strings.Join(args, "")
			list, err := drawCluster(cmd.Context(), c, node)
			if err != nil {
				return err
			}
			err = format.Write(cmd.OutOrStdout(), sliceViews(list), func(w io.Writer) error { return drawMap(w, list, node) })
			if err != nil || svg == "" {
				return err
			}
			if err := writeSVG(svg, list); err != nil {
				return fmt.Errorf("--svg: %w", err)
			}
			return nil
		},
	}
	cmd.ValidArgsFunction = completeFromCluster(&flags, nodesWithGPUs)
	flags.AddTo(cmd)
	format.AddTo(cmd)
	cmd.Flags().StringVar(&svg, "svg", "", "also write the drawing to this SVG file")
	return cmd
}

// errNoGPUs is returned if no node of the cluster has an inventory annotation.
var errNoGPUs = errors.New("no GPUs found: no node agent has published an inventory (see gshare doctor)")

// drawCluster reads the cluster and returns the slices of a node, or of all nodes if node is empty, for drawing.
func drawCluster(ctx context.Context, c *cluster.Connection, node string) (list []mapping.Slice, err error) {
	s, err := cluster.Read(ctx, c.Client)
	if err != nil {
		return nil, err
	}
	found := node == ""
	for _, n := range s.Nodes {
		if found = found || n.Name == node; node == "" || n.Name == node {
			list = append(list, slicesOn(s, n.Name)...)
		}
	}
	switch {
	case !found:
		return nil, fmt.Errorf("node %s not found", node)
	case len(list) == 0:
		return nil, errNoGPUs
	}
	return list, nil
}

// slicesOn returns the slices of a node with the shares on them, for drawing, or nil if there is no such node.
func slicesOn(s *cluster.Snapshot, node string) []mapping.Slice {
	for _, n := range s.Nodes {
		if n.Name == node {
			return mapping.Of(n, s.PodsOn(node))
		}
	}
	return nil
}

// drawMap draws all GPUs as one overview or, if a node is selected, the window of each of its slices.
func drawMap(w io.Writer, list []mapping.Slice, node string) error {
	if node == "" {
		gpumap.Overview(w, slicesOf(list), drawOptions(w))
		return nil
	}
	for _, d := range list {
		gpumap.Detail(w, d.Slice, drawOptions(w))
		fmt.Fprintln(w)
	}
	return nil
}

func slicesOf(list []mapping.Slice) (slices []gpumap.Slice) {
	for _, d := range list {
		slices = append(slices, d.Slice)
	}
	return slices
}

func writeSVG(name string, list []mapping.Slice) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	err = gpumap.SVG(f, slicesOf(list))
	return cmp.Or(err, f.Close())
}

// drawOptions returns the colours and the width with which to draw on w, depending on whether it is a terminal.
func drawOptions(w io.Writer) gpumap.Options {
	width, _ := output.Terminal(w)
	return gpumap.Options{Width: min(width, 120), Color: output.Color(w)}
}

// sliceView is the JSON representation of a slice in gshare map: its shares and how they share the window.
type sliceView struct {
	Node   string      `json:"node"`
	Slice  string      `json:"slice"`
	Model  string      `json:"model"`
	Shares []shareView `json:"shares,omitempty"`
	Window int64       `json:"windowMicroseconds"`
	Turns  []turn      `json:"turns,omitempty"` // of the slot table, which is repeated in each window
	Boxes  []box       `json:"boxes,omitempty"` // of shares that are packed as rectangles
	Fits   bool        `json:"fits"`
}

// shareView is the JSON representation of a share in gshare map and gshare tree.
type shareView struct {
	Container          string `json:"container"` // namespace/pod/container
	SMPerMille         int64  `json:"smPerMille"`
	SMLimitPerMille    int64  `json:"smLimitPerMille"`
	QuotaPerMille      int64  `json:"quotaPerMille"`
	QuotaLimitPerMille int64  `json:"quotaLimitPerMille"`
	MemoryMiB          int64  `json:"memoryMiB"`
}

// turn is the JSON representation of one turn of a slot table: the containers that run together, and for how long.
type turn struct {
	Microseconds int64    `json:"microseconds"`
	Containers   []string `json:"containers"`
}

// box is the JSON representation of a share packed as a rectangle. X and width are in per mille of the window, Y and height in per mille of
// the SMs.
type box struct {
	Container string `json:"container"`
	Time      int64  `json:"timePerMille"`
	SM        int64  `json:"smPerMille"`
	Width     int64  `json:"widthPerMille"`
	Height    int64  `json:"heightPerMille"`
}

func newShareView(container string, s share.Share) shareView {
	return shareView{container, int64(s.SMRequest), int64(s.SMLimit), int64(s.QuotaRequest), int64(s.QuotaLimit), int64(s.Memory / share.MiB)}
}

// sliceViews converts slices to JSON, each with the turns of its slot table or the rectangles of its shares.
func sliceViews(list []mapping.Slice) (out []sliceView) {
	for _, d := range list {
		m := sliceView{Node: d.Node, Slice: d.ID, Model: d.Model, Window: d.Window.Microseconds()}
		for _, s := range d.Shares {
			m.Shares = append(m.Shares, newShareView(s.Pod, s.Share))
		}
		if d.Rectangles {
			m.addBoxes(d)
		} else {
			m.addTurns(d)
		}
		out = append(out, m)
	}
	return out
}

// withSMTime returns the shares that request SM-time. The others have no turn and no rectangle of their own.
func withSMTime(shares []gpumap.Share) []gpumap.Share {
	return slices.DeleteFunc(slices.Clone(shares), func(s gpumap.Share) bool { return s.Share.RequestArea() == 0 })
}

// addTurns computes the slot table of the slice's shares and adds its turns.
func (m *sliceView) addTurns(d mapping.Slice) {
	var items []slot.Item
	shares := withSMTime(d.Shares)
	for _, s := range shares {
		items = append(items, slot.Item{SM: s.Share.SMRequest, Quota: s.Share.QuotaRequest})
	}
	table, ok := slot.Solve(items, d.Window, d.Reserve)
	m.Fits = ok
	for _, t := range table.Turns {
		out := turn{Microseconds: t.Duration.Microseconds()}
		for _, i := range t.Members {
			out.Containers = append(out.Containers, shares[i].Pod)
		}
		m.Turns = append(m.Turns, out)
	}
}

// addBoxes packs the slice's shares as rectangles and adds these.
func (m *sliceView) addBoxes(d mapping.Slice) {
	var boxes []rectangle.Box
	shares := withSMTime(d.Shares)
	for _, s := range shares {
		boxes = append(boxes, rectangle.BoxOf(s.Share))
	}
	rects, ok := rectangle.Arrange(boxes)
	m.Fits = ok
	for i, r := range rects {
		m.Boxes = append(m.Boxes, box{shares[i].Pod, int64(r.X), int64(r.Y), int64(r.W), int64(r.H)})
	}
}
