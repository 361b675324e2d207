package results

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// storedTable is the content of a table's JSON file: the measured cells and their provenance.
type storedTable struct {
	Provenance provenance `json:"provenance"`
	Cells      cells      `json:"cells"`
}

func (o options) path(t table) string { return filepath.Join(o.dir, "results", t.name+".json") }

func (o options) store(t table, got cells) error {
	text, err := json.MarshalIndent(storedTable{Provenance: o.origin, Cells: got}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.path(t)), 0o755); err != nil {
		return err
	}
	return os.WriteFile(o.path(t), append(text, '\n'), 0o644)
}

// compare returns the number of cells whose new mean differs too much from the stored one. Means of the same experiment differ by chance:
// the margin is three standard errors of their difference, and at least a thousandth of the stored mean.
func (o options) compare(t table, got cells) (int, error) {
	text, err := os.ReadFile(o.path(t))
	if err != nil {
		return 0, err
	}
	var old storedTable
	if err := json.Unmarshal(text, &old); err != nil {
		return 0, fmt.Errorf("%s: %w", o.path(t), err)
	}
	missed := 0
	for _, r := range t.rows {
		for _, c := range t.columns {
			was, ok := old.Cells[r.name][c.key()]
			if !ok {
				return 0, fmt.Errorf("%s has no cell %s / %s: run the table again", o.path(t), r.name, c.key())
			}
			is := got[r.name][c.key()]
			if c.speed || math.Abs(is.Mean-was.Mean) <= margin(was, is) {
				continue
			}
			missed++
			fmt.Printf("%s, %s, %s: %.4g is not within %.2g of the stored %.4g\n", t.name, r.name, c.key(), is.Mean, margin(was, is), was.Mean)
		}
	}
	return missed, nil
}

func margin(was, is cell) float64 {
	error2 := was.StdDev * was.StdDev * (1/float64(was.Runs) + 1/float64(is.Runs))
	return max(3*math.Sqrt(error2), math.Abs(was.Mean)/1000)
}

// provenance records the machine, the Go version, the date and the commit with which the cells of a table were measured.
type provenance struct {
	Machine string `json:"machine"`
	Go      string `json:"go"`
	Date    string `json:"date"`
	Commit  string `json:"commit"`
}

func (p provenance) String() string {
	return fmt.Sprintf("%s, %s, %s, commit %s", p.Machine, p.Go, p.Date, p.Commit)
}

func currentProvenance() provenance {
	return provenance{
		Machine: fmt.Sprintf("%d cores of %s", runtime.NumCPU(), cpuModel()), Go: runtime.Version(),
		Date: time.Now().UTC().Format(time.DateOnly), Commit: gitCommit(),
	}
}

// cpuModel returns the model name of the CPU from /proc/cpuinfo, or the architecture if there is none.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// gitCommit returns the short hash of the checked-out Git commit, followed by a plus sign if tracked files were changed since.
func gitCommit() string {
	text, err := exec.Command("git", "describe", "--always", "--exclude", "*", "--dirty=+").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(text))
}
