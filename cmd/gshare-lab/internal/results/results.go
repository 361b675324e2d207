// Package results is gshare-lab results: it runs the experiments of test/bench/RESULTS.md and writes their tables and figures, or
// checks a few seeds against the ranges stored before.
package results

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
)

type options struct {
	dir   string
	only  []string
	runs  int
	jobs  int // rows measured at a time
	check bool

	origin provenance // read at the start, because files that the command writes count as changed tracked files
}

// Command returns the command gshare-lab results, which regenerates or checks the tables of RESULTS.md.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "results", Short: "Regenerate the tables and figures of test/bench/RESULTS.md, or check them",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", "test/bench", "directory of RESULTS.md, results/ and figures/")
	f.StringSliceVar(&o.only, "only", nil, "regenerate or check only these tables: "+strings.Join(tableNames(), ", "))
	f.IntVar(&o.runs, "runs", 10, "number of seeds per cell")
	f.IntVar(&o.jobs, "jobs", 1, "number of rows to measure at a time; more than one distorts figures of speed")
	f.BoolVar(&o.check, "check", false, "compare with the stored ranges without writing anything")
	return cmd
}

func (o options) run(ctx context.Context) error {
	if err := o.validate(); err != nil {
		return cli.Usage(err)
	}
	o.origin = currentProvenance()
	missed := 0
	for _, t := range tables() {
		if len(o.only) > 0 && !slices.Contains(o.only, t.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", t.name, t.title)
		m, err := o.runTable(ctx, t)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		missed += m
	}
	if missed > 0 {
		return fmt.Errorf("%d targets or ranges missed", missed)
	}
	return nil
}

func (o options) validate() error {
	for _, name := range o.only {
		if !slices.Contains(tableNames(), name) {
			return fmt.Errorf("--only: %q is none of %s", name, strings.Join(tableNames(), ", "))
		}
	}
	switch {
	case o.jobs < 1:
		return fmt.Errorf("--jobs: must be positive, got %d", o.jobs)
	case o.runs < 1:
		return fmt.Errorf("--runs: must be positive, got %d", o.runs)
	case !o.check:
		if err := output.CheckFolder(o.dir); err != nil {
			return fmt.Errorf("--dir: %w", err)
		}
	}
	return nil
}

// runTable measures a table and publishes it, or only checks it against the stored cells. It returns the number of targets or stored ranges that
// were missed.
func (o options) runTable(ctx context.Context, t table) (int, error) {
	all := len(t.rows)
	if t = t.withoutMissing(); len(t.rows) < all && !o.check {
		return 0, nil // some rows cannot be measured here: the table keeps its stored cells
	}
	got, err := o.measure(ctx, t)
	if err != nil {
		return 0, err
	}
	if o.check {
		return o.compare(t, got)
	}
	if err := o.draw(ctx, t); err != nil {
		return 0, err
	}
	if err := o.store(t, got); err != nil {
		return 0, err
	}
	return o.publish(t, got)
}

// tableNames returns the names of all tables in the order of RESULTS.md.
func tableNames() []string {
	var out []string
	for _, t := range tables() {
		out = append(out, t.name)
	}
	return out
}

func tables() []table {
	return []table{openb(), openbBound(), openbTries(), moving(), orders(), fleet(), shapes("0"), shapes("0.05"), churn(), delivery(), events(), mig(), elasticShares(), elasticLoads(), elasticPolicies(), elasticInference(), elasticTraining(), maxTokens(), scaling(), migServing(), callServing()}
}

// columnsOf returns a column for each policy, all of the same figure. The unit is appended to the policy's name in the column's head.
func columnsOf(figure, unit string, digits int, policies ...string) []column {
	var out []column
	for _, p := range policies {
		out = append(out, column{policy: p, figure: figure, head: p + unit, digits: digits})
	}
	return out
}

func rows(flag string, values ...string) []row {
	var out []row
	for _, v := range values {
		out = append(out, row{name: v, args: []string{flag, v}})
	}
	return out
}
