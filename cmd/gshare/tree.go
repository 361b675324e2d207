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

func treeCommand() *cobra.Command {
	var flags cluster.Flags
	var format output.Format
	cmd := &cobra.Command{
		Use: "tree", Short: "List nodes, their devices, the slices of each, and who holds shares of them",
		Example: "  gshare tree\n  gshare tree -o yaml",
		Args:    cli.Exactly(0, "no argument"),
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

type treeNode struct {
	Name    string       `json:"name"`
	Doubt   string       `json:"doubt,omitempty"` // why nothing more is placed here
	Devices []treeDevice `json:"devices"`
}

type treeDevice struct {
	UUID   string      `json:"uuid"`
	Model  string      `json:"model"`
	Slices []treeSlice `json:"slices"`
}

type treeSlice struct {
	ID        string            `json:"id"`
	Profile   string            `json:"profile,omitempty"` // of a MIG instance
	SMs       int               `json:"sms"`
	MemoryMiB int64             `json:"memoryMiB"`
	Healthy   bool              `json:"healthy"`          // takes new pods
	Reason    kube.Reason       `json:"reason,omitempty"` // why it takes none
	Class     share.Isolation   `json:"class,omitempty"`
	Classes   []share.Isolation `json:"classes"`
	Shares    []held            `json:"shares,omitempty"`
}

// readTree lists the nodes with GPUs, and those whose inventory cannot be read.
func readTree(ctx context.Context, c *cluster.Connection) (nodes []treeNode, err error) {
	s, err := cluster.Read(ctx, c.Client)
	if err != nil {
		return nil, err
	}
	for _, object := range s.Nodes {
		n := s.Derive(object, packing.Packer{}, nil, cluster.Unplaced)
		if len(n.Slices) == 0 && n.Doubt == nil {
			continue
		}
		nodes = append(nodes, treeOf(n))
	}
	if len(nodes) == 0 {
		return nil, errNoGPUs
	}
	return nodes, nil
}

func treeOf(n *cluster.Node) treeNode {
	out := treeNode{Name: n.Name, Devices: []treeDevice{}}
	if n.Doubt != nil {
		out.Doubt = n.Doubt.Error()
	}
	for i := range n.Slices {
		s := &n.Slices[i]
		at := slices.IndexFunc(out.Devices, func(d treeDevice) bool { return d.UUID == s.Device })
		if at < 0 {
			at = len(out.Devices)
			out.Devices = append(out.Devices, treeDevice{UUID: s.Device, Model: s.Model})
		}
		out.Devices[at].Slices = append(out.Devices[at].Slices, leafOf(n, s))
	}
	return out
}

func leafOf(n *cluster.Node, s *packing.Slice) treeSlice {
	leaf := treeSlice{ID: string(s.ID), Profile: s.Profile, SMs: s.SMs, MemoryMiB: int64(s.Memory / share.MiB), Healthy: s.Healthy, Reason: n.Closed()[string(s.ID)], Classes: s.Classes}
	for _, h := range n.Holders(leaf.ID) {
		leaf.Class = h.Class
		leaf.Shares = append(leaf.Shares, heldOf(h.Name(), h.Share))
	}
	return leaf
}

func writeTree(w io.Writer, nodes []treeNode) error {
	for _, n := range nodes {
		fmt.Fprintln(w, n.Name+note(n.Doubt))
		for i, d := range n.Devices {
			branch, below := branchOf(i == len(n.Devices)-1)
			fmt.Fprintf(w, "%s%s  %s\n", branch, d.UUID, d.Model)
			writeSlices(w, below, d)
		}
	}
	return nil
}

// writeSlices lists the slices of a device; a whole GPU is its own only slice and needs no line.
func writeSlices(w io.Writer, below string, d treeDevice) {
	for i, s := range d.Slices {
		indent := below
		state := fmt.Sprintf("%d SMs, %d MiB, %s%s", s.SMs, s.MemoryMiB, classOf(s), health(s))
		if s.ID == d.UUID {
			fmt.Fprintf(w, "%s   %s\n", below, state)
		} else {
			branch, deeper := branchOf(i == len(d.Slices)-1)
			fmt.Fprintf(w, "%s%s%s  %s: %s\n", below, branch, s.ID, s.Profile, state)
			indent += deeper
		}
		for j, h := range s.Shares {
			branch, _ := branchOf(j == len(s.Shares)-1)
			fmt.Fprintf(w, "%s%s%s  %s\n", indent, branch, h.Container, heldText(h))
		}
	}
}

func branchOf(last bool) (branch, below string) {
	if last {
		return "└─ ", "   "
	}
	return "├─ ", "│  "
}

func heldText(h held) string {
	return fmt.Sprintf("%s SM, %s time, %d MiB", span(share.PerMille(h.SMPerMille), share.PerMille(h.SMLimitPerMille)),
		span(share.PerMille(h.QuotaPerMille), share.PerMille(h.QuotaLimitPerMille)), h.MemoryMiB)
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
	return ", takes no new pods: " + cluster.WhyClosed(s.Reason)
}

func note(doubt string) string {
	if doubt == "" {
		return ""
	}
	return "  (nothing more is placed here: " + doubt + ")"
}
