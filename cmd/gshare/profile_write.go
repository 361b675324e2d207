//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/syntax"

	"github.com/gshare-dev/gshare/cmd/internal/chart"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/rules/profile/search"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// write prints the result and draws the plot.
func (p *profileRun) write(cmd *cobra.Command, f *api.GPUFunction, plan *profilePlan, r *profiler.Record) error {
	result := profileResult{r, r.Points(), recommend(r, plan.config.Strategy)}
	write := func(w io.Writer) error {
		if plan.training {
			return writeTraining(w, f, &result)
		}
		return writeProfile(w, f, &result, plan.config.Strategy)
	}
	if err := p.format.Write(cmd.OutOrStdout(), result, write); err != nil {
		return err
	}
	if p.plot != "" {
		if err := profileChart(r).WriteFile(p.plot); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	switch {
	case result.Recommended != nil || !r.Complete:
	case r.NeverRan() != "":
		return fmt.Errorf("every trial failed, the last with: %s", r.NeverRan())
	default:
		return fmt.Errorf("no share answers requests within %v: %w", plan.config.Load.SLO, search.ErrNoSetting)
	}
	return nil
}

func writeProfile(w io.Writer, f *api.GPUFunction, r *profileResult, s search.Strategy) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SM\tQUOTA\tBATCH\tTIME OF BATCH\tRATE IN SLO\tP50\tP99\tSM-TIME A REQUEST\tNOTE")
	best, _ := r.Best(s)
	for _, trial := range r.Trials {
		p := trial.Point
		row := []string{"-", "-", "-", "-", "-"}
		if trial.Failed == "" {
			row[0] = roundTime(p.Mean)
		}
		if p.Throughput > 0 {
			row = []string{row[0], fmt.Sprintf("%.4g/s", p.Throughput), fmt.Sprintf("%.4g ms", trial.P50), fmt.Sprintf("%.4g ms", trial.P99),
				fmt.Sprintf("%.3g ms", 1000*trial.SMTime())}
		}
		note := trial.Failed
		switch {
		case trial.SMTime() > 0 && trial.ClientLate && p.Resource == best.Point.Resource && p.Batch == best.Point.Batch:
			note = "recommended, client late"
		case trial.SMTime() > 0 && p.Resource == best.Point.Resource && p.Batch == best.Point.Batch:
			note = "recommended"
		case trial.ClientLate:
			note = "client late"
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\n", p.Resource.SM.Percent(), p.Resource.Quota.Percent(), p.Batch, strings.Join(row, "\t"), note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d trials have used a GPU for %.0f s.\n", len(r.Trials), r.GPUSeconds)
	if best.ClientLate {
		fmt.Fprintln(w, "warning: this machine was too busy to tell how much the best share does; its rate is a guess. Measure again when it is quiet.")
	}
	if c := r.Recommended; c != nil {
		fmt.Fprintf(w, "Write under spec of %s, for 99 %% within %v:\n\n  resources: {share: {sm: %d, quota: %d, memory: %s}}\n  scaling: {requestsPerSecond: %v}\n",
			f.Name, f.Spec.SLO.Latency.Value(), c.SM, c.Quota, c.Memory, c.RequestsPerSecond)
		if f.Spec.Protocol == api.OIP {
			fmt.Fprintf(w, "  batching: {maxBatch: %d}\n", c.MaxBatch)
		}
		writePod(w, c)
	}
	return nil
}

// writePod prints how a function or a pod asks for more SMs than it requests, to use them while others leave them idle.
func writePod(w io.Writer, c *recommendation) {
	if c.SMLimit <= c.SM {
		return
	}
	fmt.Fprintf(w, "\nMore than %d %% of the SMs, up to %d %%, are of use where others leave them idle. A function has them with smLimit: %d in its share, and a pod of your own with\n\n"+
		"  metadata: {annotations: {%s: %s, %s: %q}}\n  resources: {limits: {%s: %d, %s: %s}}\n",
		c.SM, c.SMLimit, c.SMLimit, kube.AnnotationIsolation, share.Elastic, kube.AnnotationSMLimit, fmt.Sprint(c.SMLimit), kube.ResourceSM, c.SM,
		kube.ResourceMemory, strings.TrimSuffix(c.Memory, "Mi"))
}

// unsteadyRate is the relative deviation of a training job's rate from its mean above which shares can hardly be compared: the search accepts a
// request that costs a fifth of the rate.
const unsteadyRate = 0.10

// writeTraining prints the trials of a program that answers no requests.
func writeTraining(w io.Writer, f *api.GPUFunction, r *profileResult) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SM\tKERNELS\tOF ALL SMS\tNOTE")
	all := 0.0
	for _, trial := range r.Trials {
		if trial.Point.Resource.SM == share.Whole {
			all = trial.Point.Throughput
		}
	}
	c, unsteady := r.Recommended, false
	for _, trial := range r.Trials {
		unsteady = unsteady || trial.Confidence > unsteadyRate
		p := trial.Point
		rate, part, note := "-", "-", trial.Failed
		if p.Throughput > 0 {
			rate, part = fmt.Sprintf("%.4g/s ±%.1f %%", p.Throughput, 100*trial.Confidence), fmt.Sprintf("%.1f %%", 100*p.Throughput/all)
		}
		switch sm := int(p.Resource.SM / 10); {
		case c != nil && sm == c.SM && sm == c.SMLimit:
			note = "request and limit"
		case c != nil && sm == c.SM:
			note = "request"
		case c != nil && sm == c.SMLimit:
			note = "limit"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", p.Resource.SM.Percent(), rate, part, note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%d trials have used a GPU for %.0f s.\n", len(r.Trials), r.GPUSeconds)
	if unsteady {
		fmt.Fprintf(w, "warning: some rates differ by more than %.0f %% from one moment to the next, so that shares can hardly be compared. Measure again with a longer --steady, on a machine that is quiet.\n", 100*unsteadyRate)
	}
	if c != nil {
		fmt.Fprintf(w, "Most of what %s does on the whole GPU, and all of it where others leave SMs idle:\n\n  gshare run --sm %d --sm-limit %d --isolation %s --mem %s -- %s\n",
			f.Name, c.SM, c.SMLimit, share.Elastic, c.Memory, quoted(f.Container().Command))
		writePod(w, c)
	}
	return nil
}

// quoted returns a command as a shell reads it.
func quoted(command []string) string {
	words := make([]string, len(command))
	for i, word := range command {
		var err error
		if words[i], err = syntax.Quote(word, syntax.LangBash); err != nil {
			words[i] = fmt.Sprintf("%q", word) // a shell cannot read it; no program was started with it
		}
	}
	return strings.Join(words, " ")
}

// profileChart draws the rates over the SMs, with a line for each batch and quota.
func profileChart(r *profiler.Record) *chart.Chart {
	c := &chart.Chart{Title: fmt.Sprintf("Requests to %s within %v s", r.Model, r.Plan.SLO), X: "SMs, percent", Y: "requests per second"}
	if r.Plan.Progress > 0 {
		c.Title, c.Y = "Kernels of "+r.Model, "kernels per second"
	}
	lines := map[string]int{}
	for sm := share.PerMille(1); sm <= share.Whole; sm++ { // points are sorted by SMs
		for _, t := range r.Trials {
			if t.Point.Resource.SM != sm || t.Failed != "" {
				continue
			}
			name := fmt.Sprintf("batch %d, quota %s", t.Point.Batch, t.Point.Resource.Quota.Percent())
			if _, ok := lines[name]; !ok {
				lines[name] = len(c.Lines)
				c.Lines = append(c.Lines, chart.Line{Name: name})
			}
			line := &c.Lines[lines[name]]
			line.Points = append(line.Points, chart.Point{X: float64(sm) / 10, Y: t.Point.Throughput})
		}
	}
	return c
}
