package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/gpumap"
	"github.com/gshare-dev/gshare/cmd/internal/mapping"
	"github.com/gshare-dev/gshare/cmd/internal/output"
)

func mapCommand() *cobra.Command {
	var flags cluster.Flags
	var format output.Format
	var svg string
	cmd := &cobra.Command{
		Use: "map [NODE]", Short: "Draw the GPUs of a cluster, and the slot tables of a node's slices",
		Long: "map shows every GPU of the cluster as one character that says how much of its SM-time is promised. With the name of a\n" +
			"node it draws each slice there as its window: time runs to the right, SMs go up, and every share is a block. Where shares\n" +
			"were packed as rectangles these are drawn. --svg draws such pictures of all slices, or of the node's, into a file.",
		Example: "  gshare map\n  gshare map gpu-node-1\n  gshare map gpu-node-1 --svg node.svg",
		Args:    cli.AtMost(1, "the name of a node"),
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
			if svg != "" {
				if err := writeSVG(svg, list); err != nil {
					return fmt.Errorf("--svg: %w", err)
				}
			}
			return format.Write(cmd.OutOrStdout(), mapOf(list), func(w io.Writer) error { return drawMap(w, list, node) })
		},
	}
	cmd.ValidArgsFunction = complete(&flags, nodesWithGPUs)
	flags.AddTo(cmd)
	format.AddTo(cmd)
	cmd.Flags().StringVar(&svg, "svg", "", "also draw the slices into this file")
	return cmd
}

var errNoGPUs = errors.New("no gshare GPUs: no node agent has published an inventory (see gshare doctor)")

func drawCluster(ctx context.Context, c *cluster.Connection, node string) (list []mapping.Slice, err error) {
	s, err := cluster.Read(ctx, c.Client)
	if err != nil {
		return nil, err
	}
	found := node == ""
	for _, n := range s.Nodes {
		if found = found || n.Name == node; node == "" || n.Name == node {
			list = append(list, drawings(s, n.Name)...)
		}
	}
	switch {
	case !found:
		return nil, fmt.Errorf("there is no node %s", node)
	case len(list) == 0:
		return nil, errNoGPUs
	}
	return list, nil
}

// drawings are the slices of a node with the shares that placements give to pods.
func drawings(s *cluster.Snapshot, node string) []mapping.Slice {
	for _, n := range s.Nodes {
		if n.Name == node {
			return mapping.Of(n, s.On(node))
		}
	}
	return nil
}

func drawMap(w io.Writer, list []mapping.Slice, node string) error {
	if node == "" {
		gpumap.Overview(w, slicesOf(list), looks(w))
		return nil
	}
	for _, d := range list {
		gpumap.Detail(w, d.Slice, looks(w))
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

// looks are for where w leads to: colours and its width on a terminal.
func looks(w io.Writer) gpumap.Options {
	width, _ := output.Terminal(w)
	return gpumap.Options{Width: min(width, 120), Color: output.Color(w)}
}
