package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/measure"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const topLong = `Show the use of each share: a bar for the part of the time during which its processes used the device, with a mark (!) at its guaranteed
quota.

gshare top shows the runs of this machine. With --cluster, the default of kubectl gshare top, it shows the shares of a cluster from the
metrics of the node agents. That needs permission to list pods and to create pods/portforward in gshare-system. A share that had to wait
and got less than its quota is marked BELOW QUOTA. Over intervals of a second or less, this may be chance.`

var _ = onMachine.add(topCommand)

func topCommand() *cobra.Command {
	var socket string
	var every time.Duration
	var times int
	var t topOfCluster
	cmd := &cobra.Command{
		Use: "top", Short: "Show the use of shares on this machine or in a cluster", Long: topLong,
		Example: "  gshare top\n  gshare top --every 200ms\n  gshare top --cluster --node gpu-node-1\n  gshare top --cluster -o json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 50*time.Millisecond {
				return cli.Usagef("--every: must be at least 50ms, got %v", every)
			}
			if times < 0 {
				return cli.Usagef("--times: must not be negative, got %d", times)
			}
			if wanted, _ := cmd.Flags().GetBool(clusterFlag); wanted {
				return t.watch(cmd.Context(), cmd.OutOrStdout(), every, times)
			}
			return watchMachine(cmd, &t.format, socket, every, times)
		},
	}
	addSocket(cmd.Flags(), &socket)
	cmd.Flags().DurationVar(&every, "every", time.Second, "refresh interval")
	cmd.Flags().IntVar(&times, "times", 0, "number of refreshes (default: until interrupted)")
	cmd.Flags().Bool(clusterFlag, false, "show the shares of a cluster")
	cmd.Flags().StringVar(&t.node, "node", "", "show only this node of the cluster")
	t.flags.AddTo(cmd)
	t.format.AddTo(cmd)
	return cmd
}

// clusterFlag is the flag that selects the cluster instead of this machine; it is set by default in kubectl gshare.
const clusterFlag = "cluster"

const barCells = 40

// usageBar returns a text bar of the used fraction of the window, with a mark at the quota.
func usageBar(used, quota share.PerMille) string {
	full := cell(used, barCells)
	cells := []rune(strings.Repeat("=", full) + strings.Repeat(" ", barCells-full))
	cells[cell(quota, barCells-1)] = '!'
	return string(cells)
}

// cell returns how many cells of a bar a part of the window is, whatever a metric says.
func cell(part share.PerMille, most int) int {
	return max(0, min(most, int(part)*barCells/int(share.Whole)))
}

// topOfCluster holds the flags of gshare top --cluster.
type topOfCluster struct {
	flags  cluster.Flags
	format output.Format
	node   string
}

// useReport is the JSON and YAML output of gshare top --cluster for one interval: the use of all shares.
type useReport struct {
	At     time.Time     `json:"at"`
	Over   string        `json:"over"` // length of the interval
	Shares []measure.Use `json:"shares"`
	Errors []string      `json:"errors,omitempty"` // of agents whose metrics could not be read
}

// watch writes the use of all shares in the cluster at each interval until the context is cancelled.
func (t *topOfCluster) watch(ctx context.Context, w io.Writer, every time.Duration, times int) error {
	c, err := t.flags.Connect()
	if err != nil {
		return cli.Usage(err)
	}
	agents, err := measure.FindAgents(ctx, c, t.node)
	if err != nil {
		return err
	}
	if !t.format.Table() {
		times = 1 // one JSON or YAML document
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	before := agents.Read(ctx)
	for i := 0; times == 0 || i < times; i++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		after := agents.Read(ctx)
		apart := after.At.Sub(before.At)
		report := useReport{after.At.UTC(), apart.Round(time.Millisecond).String(), measure.Between(before.Shares, after.Shares, apart), after.Errors}
		if err := t.format.Write(w, report, func(w io.Writer) error { return writeUseReport(w, report) }); err != nil {
			return err
		}
		before = after
	}
	return nil
}

// writeUseReport writes the use of all shares in one interval as a table. On a terminal, it first clears the screen.
func writeUseReport(w io.Writer, report useReport) error {
	var b bytes.Buffer
	if _, terminal := output.Terminal(w); terminal {
		b.WriteString("\x1b[H\x1b[J")
	}
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tSLICE\tCONTAINER\tSM\tQUOTA\tTIME USED\t\tMEM\tUSED\tSTALLS\tSTATE")
	for _, u := range report.Shares {
		quota, used := share.PerMille(u.Quota), share.PerMille(u.Used)
		state := "ok"
		if u.Short {
			state = "BELOW QUOTA"
		}
		if u.Closed != "" {
			state += ", slice closed: " + u.Closed
		}
		output.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t|%s|\t%s\t%s\t%s\t%d\t%s\n", u.Node, shortDevice(u.Slice), u.Container, share.PerMille(u.SM).Percent(),
			formatRange(quota, share.PerMille(u.QuotaLimit)), usageBar(used, quota), used.Percent(), memoryText(share.Bytes(u.Memory)),
			memoryText(share.Bytes(u.MemoryUsed)), u.Stalls, state)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, text := range report.Errors {
		output.Fprintln(&b, "* error:", text)
	}
	_, err := w.Write(b.Bytes())
	return err
}
