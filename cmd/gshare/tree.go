package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

var _ = inCluster.add(treeCommand)

func treeCommand() *cobra.Command {
	var flags cluster.Flags
	var format output.Format
	cmd := &cobra.Command{
		Use: "tree", Short: "List the GPUs of a cluster with their slices and shares",
		Long:    "List the nodes, the devices of each node, the slices of each device, and the containers with a share of each slice.",
		Example: "  gshare tree\n  gshare tree -o yaml",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := flags.Connect()
			if err != nil {
				return cli.Usage(err)
			}
			nodes, err := readTree(cmd.Context(), c)
			if err != nil {
				return err
			}
			return format.Write(cmd.OutOrStdout(), nodes, func(w io.Writer) error { return writeTree(w, nodes) })
		},
	}
	flags.AddTo(cmd)
	format.AddTo(cmd)
	return cmd
}

// treeNode is a cluster node with GPUs, the top level of gshare tree.
type treeNode struct {
	Name    string       `json:"name"`
	Error   string       `json:"error,omitempty"` // why no more pods are placed on the node
	Devices []treeDevice `json:"devices"`
}

// treeDevice is a GPU of a node in gshare tree.
type treeDevice struct {
	UUID   string      `json:"uuid"`
	Model  string      `json:"model"`
	Slices []treeSlice `json:"slices"`
}

// treeSlice is a slice, the whole GPU or a MIG instance, in gshare tree.
type treeSlice struct {
	ID        string            `json:"id"`
	Profile   string            `json:"profile,omitempty"` // of a MIG instance
	SMs       int               `json:"sms"`
	MemoryMiB int64             `json:"memoryMiB"`
	Healthy   bool              `json:"healthy"`          // takes new pods
	Reason    kube.Reason       `json:"reason,omitempty"` // why it takes none
	Class     share.Isolation   `json:"class,omitempty"`
	Classes   []share.Isolation `json:"classes"`
	Shares    []shareView       `json:"shares,omitempty"`
}

// readTree reads the cluster and returns the nodes with GPUs, and the names of nodes whose inventory annotation is invalid.
func readTree(ctx context.Context, c *cluster.Connection) (nodes []treeNode, err error) {
	s, err := cluster.Read(ctx, c.Client)
	if err != nil {
		return nil, err
	}
	for _, object := range s.Nodes {
		n := s.Derive(object, cluster.Profile{}, nil, cluster.Unplaced)
		if len(n.Slices) == 0 && n.Untrusted == nil {
			continue
		}
		nodes = append(nodes, newTreeNode(n))
	}
	if len(nodes) == 0 {
		return nil, errNoGPUs
	}
	return nodes, nil
}

// newTreeNode converts a node for gshare tree, with its slices grouped by GPU.
func newTreeNode(n *cluster.Node) treeNode {
	out := treeNode{Name: n.Name, Devices: []treeDevice{}}
	if n.Untrusted != nil {
		out.Error = n.Untrusted.Error()
	}
	for i := range n.Slices {
		s := &n.Slices[i]
		at := slices.IndexFunc(out.Devices, func(d treeDevice) bool { return d.UUID == s.Device })
		if at < 0 {
			at = len(out.Devices)
			out.Devices = append(out.Devices, treeDevice{UUID: s.Device, Model: s.Model})
		}
		out.Devices[at].Slices = append(out.Devices[at].Slices, newTreeSlice(n, s))
	}
	return out
}

// newTreeSlice converts a slice, with the shares on it, for gshare tree.
func newTreeSlice(n *cluster.Node, s *packing.Slice) treeSlice {
	leaf := treeSlice{ID: string(s.ID), Profile: s.Profile, SMs: s.SMs, MemoryMiB: int64(s.Memory / share.MiB), Healthy: s.Healthy, Reason: n.Closed()[string(s.ID)], Classes: s.Classes}
	for _, h := range n.Holders(leaf.ID) {
		leaf.Class = h.Class
		leaf.Shares = append(leaf.Shares, newShareView(h.Name(), h.Share))
	}
	return leaf
}

func writeTree(w io.Writer, nodes []treeNode) error {
	for _, n := range nodes {
		output.Fprintln(w, n.Name+errorNote(n.Error))
		for i, d := range n.Devices {
			branch, below := treePrefixes(i == len(n.Devices)-1)
			output.Fprintf(w, "%s%s  %s\n", branch, d.UUID, d.Model)
			writeSlices(w, below, d)
		}
	}
	return nil
}

// writeSlices writes the slices of a GPU and their shares. A slice that is the whole GPU has no branch of its own.
func writeSlices(w io.Writer, below string, d treeDevice) {
	for i, s := range d.Slices {
		indent := below
		state := fmt.Sprintf("%d SMs, %d MiB, %s%s", s.SMs, s.MemoryMiB, classOf(s), health(s))
		if s.ID == d.UUID {
			output.Fprintf(w, "%s   %s\n", below, state)
		} else {
			branch, deeper := treePrefixes(i == len(d.Slices)-1)
			output.Fprintf(w, "%s%s%s  %s: %s\n", below, branch, s.ID, s.Profile, state)
			indent += deeper
		}
		for j, h := range s.Shares {
			branch, _ := treePrefixes(j == len(s.Shares)-1)
			output.Fprintf(w, "%s%s%s  %s\n", indent, branch, h.Container, shareText(h))
		}
	}
}

// treePrefixes returns the box-drawing characters that precede an entry of the tree, and those that precede the lines below the entry.
func treePrefixes(last bool) (branch, below string) {
	if last {
		return "└─ ", "   "
	}
	return "├─ ", "│  "
}

func shareText(h shareView) string {
	return fmt.Sprintf("%s SM, %s time, %d MiB", formatRange(share.PerMille(h.SMPerMille), share.PerMille(h.SMLimitPerMille)),
		formatRange(share.PerMille(h.QuotaPerMille), share.PerMille(h.QuotaLimitPerMille)), h.MemoryMiB)
}

func classOf(s treeSlice) string {
	if s.Class == "" {
		return "empty"
	}
	return string(s.Class)
}

func health(s treeSlice) string {
	if s.Healthy {
		return ""
	}
	return ", closed: " + cluster.ReasonText(s.Reason)
}

func errorNote(text string) string {
	if text == "" {
		return ""
	}
	return "  (no more pods are placed: " + text + ")"
}
