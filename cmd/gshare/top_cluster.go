package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/measure"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/vgpu/share"
)

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
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t|%s|\t%s\t%s\t%s\t%d\t%s\n", u.Node, shortDevice(u.Slice), u.Container, share.PerMille(u.SM).Percent(),
			formatRange(quota, share.PerMille(u.QuotaLimit)), usageBar(used, quota), used.Percent(), memoryText(share.Bytes(u.Memory)),
			memoryText(share.Bytes(u.MemoryUsed)), u.Stalls, state)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, text := range report.Errors {
		fmt.Fprintln(&b, "* error:", text)
	}
	_, err := w.Write(b.Bytes())
	return err
}
