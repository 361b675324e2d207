//go:build linux

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/agent"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/vgpu/api/control"
)

// watchMachine writes the use of the shares of this machine: once in another format than a table, else until the context is cancelled.
func watchMachine(cmd *cobra.Command, format *output.Format, socket string, every time.Duration, times int) error {
	if !format.Table() {
		return writeStatus(cmd, format, socket)
	}
	return watch(cmd.Context(), cmd.OutOrStdout(), agent.New(socket), every, times)
}

// watch writes the agent's status at each interval until the context is cancelled. On a terminal, each status replaces the one before.
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
		if _, err := w.Write(refreshText(status, live)); err != nil {
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

// refreshText returns the output of one interval. On a terminal, it starts with the codes that clear the screen.
func refreshText(status control.Status, live bool) []byte {
	var b bytes.Buffer
	if live {
		b.WriteString("\x1b[H\x1b[J")
	}
	for _, d := range status.Devices {
		output.Fprintf(&b, "%s  %s  %d SMs  SM-time %s allocated  memory %s of %s allocated  %s\n", shortDevice(d.UUID), d.Model, d.SMs,
			d.Time.Percent(), memoryText(d.Promised), memoryText(d.Memory), d.Class)
		for _, r := range status.Runs {
			writeUse(&b, d.UUID, r)
		}
	}
	return b.Bytes()
}

// writeUse writes the lines of gshare top for the vGPUs that one program has on a device.
func writeUse(b *bytes.Buffer, device string, r control.Run) {
	for _, v := range r.VGPUs {
		if v.Device != device {
			continue
		}
		output.Fprintf(b, "  %-16.16s SM %4s of %-9s |%s| %5s of %-9s mem %6s of %-6s %s\n", r.Name, v.SMNow.Percent(), formatRange(v.SM, v.SMLimit),
			usageBar(v.UsedTime, v.Quota), v.UsedTime.Percent(), formatRange(v.Quota, v.QuotaLimit), memoryText(v.UsedMemory), memoryText(v.Memory), stateOf(v, &r))
	}
}
