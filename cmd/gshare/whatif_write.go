package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/vgpu/whatif"
)

func (w *whatifRun) write(out io.Writer, c *comparison) error {
	if w.plot != "" {
		if err := c.chart().WriteFile(w.plot); err != nil {
			return err
		}
	}
	return w.format.Write(out, c, c.writeTable)
}

func (c *comparison) writeTable(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POOL, MODEL\tPODS\tNODES\tGPUS\tHELD NOW\tWITH GSHARE\tFEWER\tNODES NOW\tWITH GSHARE")
	for _, r := range c.Rows {
		writeRow(t, rowName(r), r)
	}
	if len(c.Rows) > 1 {
		writeRow(t, "total", c.Total)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, note := range c.Notes {
		fmt.Fprintln(out, "*", note)
	}
	for _, pod := range c.Total.Unplaced {
		fmt.Fprintln(out, "* does not fit, counted with the GPUs that it holds now:", pod)
	}
	return nil
}

// writeRow writes the table row of a node pool, or of the total. It adds zero to numbers because -0 would be printed as such.
func writeRow(t io.Writer, name string, r whatif.Row) {
	fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%.0f%%\t%d\t%d\n", name, r.Pods, r.Nodes, r.GPUs,
		r.HeldGPUs, r.NeededGPUs, math.Round(r.SavedPercent())+0, r.HeldNodes, r.NeededNodes)
}

// maxPools is the largest number of node pools in the chart, which draws those that use the most GPUs.
const maxPools = 4

// chart returns two bars for each node pool: the GPUs in use today, and those needed with gshare.
func (c *comparison) chart() *chart.Chart {
	picture := &chart.Chart{Title: "GPUs held by pods now, and with gshare", Y: "GPUs"}
	rows := slices.Clone(c.Rows)
	slices.SortStableFunc(rows, func(a, b whatif.Row) int { return cmp.Compare(b.HeldGPUs, a.HeldGPUs) })
	for _, r := range rows[:min(len(rows), maxPools)] {
		picture.Bars = append(picture.Bars, bars(r.Pool+"\n"+strings.TrimPrefix(r.Model, "NVIDIA-"), r)...)
	}
	if len(rows) > 1 {
		picture.Bars = append(picture.Bars, bars("total", c.Total)...)
	}
	return picture
}

func bars(name string, r whatif.Row) []chart.Bar {
	return []chart.Bar{{Name: "now\n" + name, Value: float64(r.HeldGPUs)}, {Name: "gshare", Value: float64(r.NeededGPUs)}}
}
