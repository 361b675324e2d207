// Package results is gshare-lab results: it runs the experiments of test/bench/RESULTS.md and writes their tables and figures, or
// checks a few seeds against the ranges stored before.
package results

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/lab/dataset"
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

// table is one table of RESULTS.md: a row is an input of the experiment, a column is a figure of one policy, and a cell is the mean over
// the random seeds.
type table struct {
	name, title, text string
	command           []string // arguments of gshare-lab that all rows have
	needs             []string // data files that the profiles in its arguments name
	rows              []row
	columns           []column
	targets           []target
	figures           []chartFile
}

type row struct {
	name string
	args []string
}

// column is a column of a table: one measured figure of one policy.
type column struct {
	policy, figure, head string
	digits               int
	speed                bool // depends on the machine: never compared with stored ranges
}

func (c column) key() string { return c.policy + " " + c.figure }

// chartFile is a chart in RESULTS.md: its file, its caption and the arguments with which gshare-lab draws it.
type chartFile struct {
	file, caption string
	args          []string
}

// cell holds the mean and the standard deviation of a figure over the runs, one for each random seed.
type cell struct {
	Mean   float64 `json:"mean"`
	StdDev float64 `json:"stddev"`
	Runs   int     `json:"runs"`
}

// cells holds the measured cells of a table, by the row's name and the column's key.
type cells map[string]map[string]cell

// summary is the decoded JSON output of gshare-lab simulate for one policy.
type summary struct {
	Policy       string             `json:"policy"`
	Mean, StdDev map[string]float64 `json:"-"`
}

func (s *summary) UnmarshalJSON(text []byte) error {
	var several struct {
		Policy string             `json:"policy"`
		Mean   map[string]float64 `json:"mean"`
		StdDev map[string]float64 `json:"stddev"`
	}
	if err := json.Unmarshal(text, &several); err != nil {
		return err
	}
	s.Policy, s.Mean, s.StdDev = several.Policy, several.Mean, several.StdDev
	if s.Mean != nil {
		return nil
	}
	var one map[string]any
	if err := json.Unmarshal(text, &one); err != nil {
		return err
	}
	s.Mean = map[string]float64{}
	for name, v := range one {
		if number, ok := v.(float64); ok {
			s.Mean[name] = number
		}
	}
	return nil
}

// missingFile returns the first data file that the row needs but that is not in the repository for lack of a licence, or an empty string.
func (t table) missingFile(r row) string {
	for _, name := range slices.Concat(t.needs, t.command, r.args) {
		if !dataset.Licensed(name) {
			if _, err := dataset.ReadFile(name); err != nil {
				return name
			}
		}
	}
	return ""
}

// withoutMissing returns the table without the rows whose data files are not in the repository, and reports each omitted row on standard
// error.
func (t table) withoutMissing() table {
	t.rows = slices.DeleteFunc(slices.Clone(t.rows), func(r row) bool {
		name := t.missingFile(r)
		if name != "" {
			fmt.Fprintf(os.Stderr, "  %-16s left out: no %s, see lab/dataset/testdata/README.md\n", r.name, name)
		}
		return name != ""
	})
	return t
}

// measure runs the rows of the table, o.jobs of them at the same time. That affects only figures of speed.
func (o options) measure(ctx context.Context, t table) (cells, error) {
	measured := make([]map[string]cell, len(t.rows))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(o.jobs)
	for i, r := range t.rows {
		group.Go(func() (err error) {
			if measured[i], err = o.measureRow(ctx, t, r); err != nil {
				return fmt.Errorf("row %s: %w", r.name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := cells{}
	for i, r := range t.rows {
		out[r.name] = measured[i]
	}
	return out, nil
}

func (o options) measureRow(ctx context.Context, t table, r row) (map[string]cell, error) {
	args := slices.Concat(t.command, r.args, []string{"--policy", policyList(t.columns), "--runs", strconv.Itoa(o.runs), "--output", "json"})
	begin := time.Now()
	text, err := o.simulateOutput(ctx, args)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "  %-16s %6.1fs\n", r.name, time.Since(begin).Seconds())
	found, err := parse(text)
	if err != nil {
		return nil, err
	}
	return pick(t.columns, found, o.runs)
}

// policyList returns the distinct policies of the columns, separated by commas, as the flag --policy takes them.
func policyList(columns []column) string {
	var list []string
	for _, c := range columns {
		if len(list) == 0 || !strings.Contains(","+strings.Join(list, ",")+",", ","+c.policy+",") {
			list = append(list, c.policy)
		}
	}
	return strings.Join(list, ",")
}

func (o options) simulateOutput(ctx context.Context, args []string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(self), strings.Join(args, " "), err, complaint.String())
	}
	return text, nil
}

func parse(text []byte) (map[string]summary, error) {
	var list []summary
	if err := json.Unmarshal(text, &list); err != nil {
		list = make([]summary, 1)
		if err := json.Unmarshal(text, &list[0]); err != nil {
			return nil, err
		}
	}
	found := map[string]summary{}
	for _, s := range list {
		found[s.Policy] = s
	}
	return found, nil
}

func pick(columns []column, found map[string]summary, runs int) (map[string]cell, error) {
	out := map[string]cell{}
	for _, c := range columns {
		mean, ok := found[c.policy].Mean[c.figure]
		if !ok || math.IsNaN(mean) {
			return nil, fmt.Errorf("no figure %s of policy %s", c.figure, c.policy)
		}
		out[c.key()] = cell{Mean: mean, StdDev: found[c.policy].StdDev[c.figure], Runs: runs}
	}
	return out, nil
}

func (o options) draw(ctx context.Context, t table) error {
	for _, f := range t.figures {
		path := filepath.Join(o.dir, "figures", f.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if _, err := o.simulateOutput(ctx, append(append([]string{}, f.args...), "--plot", path)); err != nil {
			return fmt.Errorf("figure %s: %w", f.file, err)
		}
	}
	return nil
}

// publish replaces the table's section of RESULTS.md, which is between two markers, and returns the number of targets that the cells miss.
func (o options) publish(t table, got cells) (int, error) {
	file := filepath.Join(o.dir, "RESULTS.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	verdicts, missed := t.checkTargets(got)
	section := t.markdown(got, o.runs, o.origin) + verdicts
	page, err := replaceSection(string(text), t.name, section)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return missed, os.WriteFile(file, []byte(page), 0o644)
}

func replaceSection(page, name, section string) (string, error) {
	begin, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->"
	head, rest, ok := strings.Cut(page, begin)
	if !ok {
		return "", fmt.Errorf("no line %q", strings.TrimSpace(begin))
	}
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		return "", fmt.Errorf("no line %q", end)
	}
	return head + begin + section + end + tail, nil
}

func (t table) markdown(got cells, runs int, origin provenance) string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s\n\n`gshare-lab %s`, %d seeds from 1; %s.\n\n", t.title, t.text, strings.Join(t.command, " "), runs, origin)
	b.WriteString("| |")
	for _, c := range t.columns {
		fmt.Fprintf(&b, " %s |", c.head)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(t.columns)) + "\n")
	for _, r := range t.rows {
		fmt.Fprintf(&b, "| %s |", r.name)
		for _, c := range t.columns {
			fmt.Fprintf(&b, " %s |", c.text(got[r.name][c.key()]))
		}
		b.WriteByte('\n')
	}
	for _, f := range t.figures {
		fmt.Fprintf(&b, "\n![%s](figures/%s)\n", f.caption, f.file)
	}
	b.WriteByte('\n')
	return b.String()
}

func (c column) text(v cell) string {
	mean := strconv.FormatFloat(v.Mean, 'f', c.digits, 64)
	dev := strconv.FormatFloat(v.StdDev, 'f', c.digits, 64)
	if v.Runs < 2 || strings.Trim(dev, "0.") == "" {
		return mean
	}
	return mean + " ±" + dev
}
