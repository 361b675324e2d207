// Package sweep is gshare-lab sweep: it measures a real model on fractions of the vCPUs of this machine, and how well the latency model of gshare plan
// predicts what was not measured.
package sweep

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/serving/rules/profile"
)

const long = `Measure a model on fractions of this machine's vCPUs, and print how well curves that are fitted to some of the points predict the others.

The model is a residual network with random weights in PyTorch (Debian: python3-torch), or what PROGRAM runs. PROGRAM must write "ready".
For each line that it then reads, it must run a batch of the size in the line, then write a line.

A fraction is a part of the time, as for a container with a CPU limit: in each period, the program runs until it has used up its part, and
is then stopped. For each batch, the points are both ends of the range, and then always the middle of the widest gap between two points.
The points that are held out lie in the middle of gaps. All of this is done again for each repeat.

The exit code is 1 if an error of the points that were held out exceeds its bound. Nothing else should run on the machine.`

// options are the flags of gshare-lab sweep.
type options struct {
	python            string
	period            int
	experiment        experiment
	repeats           int
	from, to          int64
	maxMean, maxTails float64
	format            output.Format
}

// Command returns the command gshare-lab sweep.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use: "sweep [-- PROGRAM [ARGUMENTS]]", Short: "Measure a model on fractions of vCPUs, and how well a fit predicts others", Long: long,
		Example: "  gshare-lab sweep\n  gshare-lab sweep --from 250 --to 1000 --batches 1 -o yaml -- ./model --threads 1",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return cli.Usage(err)
			}
			return o.run(cmd.Context(), cmd, args)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.python, "python", "/usr/bin/python3", "Python interpreter with torch")
	f.Int64Var(&o.from, "from", 500, "minimum vCPUs, in thousandths")
	f.Int64Var(&o.to, "to", int64(1000*runtime.NumCPU()), "maximum vCPUs, in thousandths")
	f.IntSliceVar(&o.experiment.batches, "batches", []int{1, 2}, "batch sizes, consecutive from 1")
	f.IntVar(&o.experiment.most, "points", 7, "number of points to fit per batch size")
	f.IntVar(&o.experiment.heldOut, "held-out", 4, "number of held-out points per batch size")
	f.IntVar(&o.experiment.executions, "executions", 100, "number of executions per point")
	f.IntVar(&o.repeats, "repeats", 3, "number of times to make all measurements")
	f.IntVar(&o.period, "period", 100, "period in milliseconds, of which the program runs for its part; Kubernetes uses 100")
	f.Float64Var(&o.maxMean, "max-mean", 10, "maximum error of the means, in percent")
	f.Float64Var(&o.maxTails, "max-p99", 12, "maximum error of the p99, in percent")
	o.format.AddTo(cmd)
	return cmd
}

func (o *options) check() error {
	o.experiment.from, o.experiment.to = profile.MilliCPU(o.from), profile.MilliCPU(o.to)
	switch e := &o.experiment; {
	case o.from < 10 || o.to <= o.from || o.to > int64(1000*runtime.NumCPU()):
		return fmt.Errorf("--from %d --to %d: want a range of 10 to %d thousandths, which this machine has", o.from, o.to, 1000*runtime.NumCPU())
	case e.most < 4 || e.most > 100 || e.heldOut < 1 || e.heldOut >= e.most:
		return fmt.Errorf("--points %d --held-out %d: want 4 to 100, and fewer held out", e.most, e.heldOut)
	case e.executions < 10 || e.executions > 1e6 || o.repeats < 1 || o.repeats > 100:
		return fmt.Errorf("--executions %d --repeats %d: want 10 to a million, and 1 to 100", e.executions, o.repeats)
	case o.period < 5 || o.period > 1000:
		return fmt.Errorf("--period %d: want 5 to 1000", o.period)
	}
	for name, most := range map[string]float64{"max-mean": o.maxMean, "max-p99": o.maxTails} {
		if !(most >= 0 && most <= 1e6) { // NaN, too
			return fmt.Errorf("--%s: %v is not between 0 and a million", name, most)
		}
	}
	for i, b := range o.experiment.batches {
		if b != i+1 {
			return fmt.Errorf("--batches %v: want 1, 2 and so on", o.experiment.batches)
		}
	}
	return nil
}

func (o *options) run(ctx context.Context, cmd *cobra.Command, args []string) error {
	p, err := o.start(ctx, args)
	if err != nil {
		return err
	}
	defer p.close()
	var results []result
	for n := range o.repeats {
		r, err := o.experiment.run(func(c profile.MilliCPU, batch, executions int) ([]time.Duration, error) {
			cmd.PrintErrf("repeat %d of %d: %g vCPUs, batch %d\n", n+1, o.repeats, float64(c)/1000, batch)
			return p.measure(ctx, c, batch, executions)
		})
		if err != nil {
			return err
		}
		results = append(results, r)
	}
	if err := o.format.Write(cmd.OutOrStdout(), results, func(w io.Writer) error { return writeTable(w, results) }); err != nil {
		return err
	}
	return o.judge(results)
}

// judge returns an error if a repeat's predictions are worse than required.
func (o *options) judge(results []result) error {
	for n, r := range results {
		if mean, p99 := errorsOf(r.HeldOut); 100*float64(mean) > o.maxMean || 100*float64(p99) > o.maxTails {
			return fmt.Errorf("repeat %d: held out, the error is %.1f %% of the mean and %.1f %% of the p99; want at most %g and %g", n+1, 100*mean, 100*p99, o.maxMean, o.maxTails)
		}
	}
	return nil
}

func writeTable(out io.Writer, results []result) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "REPEAT\tBATCH\tVCPUS\tMEAN\tPREDICTED\tP99\tPREDICTED\t")
	for n, r := range results {
		for _, of := range []struct {
			points []point
			what   string
		}{{r.Fitted, "fitted"}, {r.HeldOut, "held out"}} {
			for _, p := range of.points {
				fmt.Fprintf(t, "%d\t%d\t%.3f\t%.1f ms\t%.1f ms\t%.1f ms\t%.1f ms\t%s\n", n+1, p.Batch, float64(p.CPU)/1000,
					1e3*p.Measured.Mean, 1e3*p.Predicted.Mean, 1e3*p.Measured.P99, 1e3*p.Predicted.P99, of.what)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(out)
	fmt.Fprintln(t, "REPEAT\tERROR OF MEANS, FITTED\tHELD OUT\tERROR OF P99, FITTED\tHELD OUT")
	for n, r := range results {
		mean, p99 := errorsOf(r.Fitted)
		otherMean, otherP99 := errorsOf(r.HeldOut)
		fmt.Fprintf(t, "%d\t%.1f %%\t%.1f %%\t%.1f %%\t%.1f %%\n", n+1, 100*mean, 100*otherMean, 100*p99, 100*otherP99)
	}
	return t.Flush()
}
