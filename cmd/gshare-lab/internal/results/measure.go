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

	"golang.org/x/sync/errgroup"

	"github.com/gshare-dev/gshare/lab/dataset"
)

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
