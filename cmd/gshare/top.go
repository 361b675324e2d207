package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/agent"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const topLong = `top shows each share beside what it really has: bars are the part of the time that its processes used the device, the mark is
the quota that it is guaranteed.

gshare top watches the runs of this machine. With --cluster, as kubectl gshare top does by default, it asks the node agents of a cluster
for their metrics. That takes permission to list pods in gshare-system and to create pods/portforward there, which are an
administrator's. A share that waited and yet had less than its quota is marked; over a second or less that may be chance.`

func topCommand() *cobra.Command {
	var socket string
	var every time.Duration
	var times int
	var t topOfCluster
	cmd := &cobra.Command{
		Use: "top", Short: "Watch shares against measured use, on this machine or in a cluster", Long: topLong,
		Example: "  gshare top\n  gshare top --every 200ms\n  gshare top --cluster --node gpu-node-1\n  gshare top --cluster -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if every < 50*time.Millisecond {
				return cli.Usagef("--every: %v is less than 50ms", every)
			}
			if wanted, _ := cmd.Flags().GetBool(clusterFlag); wanted {
				return t.watch(cmd.Context(), cmd.OutOrStdout(), every, times)
			}
			if !t.format.Table() {
				return writeStatus(cmd, &t.format, socket)
			}
			return watch(cmd.Context(), cmd.OutOrStdout(), agent.New(socket), every, times)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "control socket of the agent of this machine")
	cmd.Flags().DurationVar(&every, "every", time.Second, "how often to look")
	cmd.Flags().IntVar(&times, "times", 0, "how many times to look (default: until interrupted)")
	cmd.Flags().Bool(clusterFlag, false, "look at a cluster")
	cmd.Flags().StringVar(&t.node, "node", "", "only this node of the cluster")
	t.flags.AddTo(cmd)
	t.format.AddTo(cmd)
	return cmd
}

// clusterFlag is set where kubectl runs the program.
const clusterFlag = "cluster"

// watch draws the status again and again, in place on a terminal.
func watch(ctx context.Context, w io.Writer, c *agent.Client, every time.Duration, times int) error {
	live := term.IsTerminal(int(os.Stdout.Fd()))
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := 0; times == 0 || i < times; i++ {
		status, err := c.Status(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := w.Write(frame(status, live)); err != nil {
			return err
		}
		if i+1 == times {
			break
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// frame is one picture; on a terminal it replaces the last.
func frame(status control.Status, live bool) []byte {
	var b bytes.Buffer
	if live {
		b.WriteString("\x1b[H\x1b[J")
	}
	for _, d := range status.Devices {
		fmt.Fprintf(&b, "%s  %s  %d SMs  SM-time %s promised  memory %s of %s promised  %s\n", shortDevice(d.UUID), d.Model, d.SMs,
			d.Time.Percent(), memoryText(d.Promised), memoryText(d.Memory), d.Class)
		for _, r := range status.Runs {
			writeUse(&b, d.UUID, r)
		}
	}
	return b.Bytes()
}

func writeUse(b *bytes.Buffer, device string, r control.Run) {
	for _, v := range r.VGPUs {
		if v.Device != device {
			continue
		}
		fmt.Fprintf(b, "  %-16.16s SM %4s of %-9s |%s| %5s of %-9s mem %6s of %-6s %s\n", r.Name, v.SMNow.Percent(), span(v.SM, v.SMLimit),
			bar(v.UsedTime, v.Quota), v.UsedTime.Percent(), span(v.Quota, v.QuotaLimit), memoryText(v.UsedMemory), memoryText(v.Memory), stateOf(v))
	}
}

const barCells = 40

// bar is use in the whole window, with a mark at the quota.
func bar(used, quota share.PerMille) string {
	full := min(barCells, int(used)*barCells/int(share.Whole))
	cells := []rune(strings.Repeat("=", full) + strings.Repeat(" ", barCells-full))
	cells[min(barCells-1, int(quota)*barCells/int(share.Whole))] = '!'
	return string(cells)
}
