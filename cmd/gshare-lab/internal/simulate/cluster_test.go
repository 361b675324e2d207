package simulate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

const (
	nodeRows = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,T4\nn1,96000,786432,8,G2\n"
	podRows  = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,4000,1024,1,500\np1,8000,1024,1,1000\np2,2000,1024,0,0\n"
)

// simulateFiles writes the two tables into a folder of their own.
func simulateFiles(t *testing.T, nodes, pods string) (dir string, args []string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range map[string]string{"nodes.csv": nodes, "pods.csv": pods} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, []string{"simulate", "cluster", "--nodes", filepath.Join(dir, "nodes.csv"), "--pods", filepath.Join(dir, "pods.csv")}
}

// root returns the command as the program has it.
func root() *cobra.Command {
	cmd := cli.Root(&cobra.Command{Use: "gshare-lab"})
	cmd.AddCommand(Command())
	return cmd
}

// gshare runs the command and gives its output and what main would exit with.
func gshare(t *testing.T, args ...string) (out string, code int, err error) {
	t.Helper()
	var text bytes.Buffer
	cmd := root()
	cmd.SetOut(&text)
	cmd.SetErr(&text)
	cmd.SetArgs(args)
	if err = cmd.ExecuteContext(t.Context()); err != nil {
		code = cli.ExitCode(err)
	}
	return text.String(), code, err
}

func TestSimulateClusterFigures(t *testing.T) {
	_, args := simulateFiles(t, nodeRows, podRows)
	var seen []map[string]any
	out, code, err := gshare(t, append(args, "--policy", "all", "-o", "json", "--seed", "5")...)
	if err != nil || code != 0 {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(out), &seen); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 9 {
		t.Errorf("%d policies", len(seen))
	}
	for _, s := range seen {
		full, end := s["allocation_percent_100"].(float64), s["allocation_percent_130"].(float64)
		if s["seed"] != 5.0 || full < 50 || end < full || end > 100 || s["decisions_per_second"].(float64) <= 0 {
			t.Errorf("figures %v", s)
		}
		if idle := 100 - end; s["fragmentation"].(float64) > idle {
			t.Errorf("%v: more fragments than idle GPUs, %v %%", s, idle)
		}
	}
}

// The same seed gives the same figures, but for the speed; another seed another order of pods.
func TestSimulateClusterRepeats(t *testing.T) {
	_, args := simulateFiles(t, nodeRows, podRows)
	var runs []map[string]any
	for range 2 {
		out, _, err := gshare(t, append(args, "--policy", "gshare", "-o", "json")...)
		if err != nil {
			t.Fatal(err)
		}
		var s map[string]any
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatal(err)
		}
		delete(s, "decisions_per_second")
		runs = append(runs, s)
	}
	if a, b := runs[0], runs[1]; a["allocation_percent_130"] != b["allocation_percent_130"] || a["fragmentation"] != b["fragmentation"] {
		t.Errorf("%v, then %v", a, b)
	}
}

func TestSimulateClusterDrawsACurve(t *testing.T) {
	dir, args := simulateFiles(t, nodeRows, podRows)
	file := filepath.Join(dir, "curve.svg")
	if _, code, err := gshare(t, append(args, "--policy", "fgd,gshare", "--runs", "2", "--plot", file)...); err != nil || code != 0 {
		t.Fatal(err)
	}
	picture, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"fgd", "gshare", "arrived load"} {
		if !strings.Contains(string(picture), want) {
			t.Errorf("no %q in the picture", want)
		}
	}
}

// Mistakes of the caller's end with 2 and a message that names the place, and write nothing.
func TestSimulateClusterRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		nodes, pods string
		args        []string
		want        string
	}{
		"broken number":    {nodes: strings.Replace(nodeRows, "96000", "96k", 1), want: "nodes.csv: line 3, column cpu_milli"},
		"negative":         {pods: strings.Replace(podRows, "8000", "-8000", 1), want: "pods.csv: line 3, column cpu_milli"},
		"too few fields":   {pods: podRows + "p3,1\n", want: "pods.csv: record on line 5"},
		"unknown model":    {nodes: strings.Replace(nodeRows, "G2", "G9", 1), want: "nodes.csv: line 3, column model"},
		"parts of several": {pods: podRows + "p3,1000,1024,2,500\n", want: "pods.csv: line 5, column gpu_milli"},
		"no column":        {nodes: "sn,cpu_milli\nn0,1\n", want: "nodes.csv: line 1: no column memory_mib"},
		"no rows":          {pods: strings.SplitAfter(podRows, "\n")[0], want: "pods.csv: no rows"},
		"no GPUs":          {nodes: "sn,cpu_milli,memory_mib,gpu,model\nn0,1,1,0,\n", want: "nothing to simulate"},
		"no asks":          {pods: "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,0,0\n", want: "nothing to simulate"},
		"unknown policy":   {args: []string{"--policy", "fgd,luck"}, want: `--policy: unknown value "luck"`},
		"unknown order":    {args: []string{"--order", "x"}, want: `--order: unknown value "x"`},
		"unknown output":   {args: []string{"-o", "xml"}, want: `--output: unknown format "xml"`},
		"unknown picture":  {args: []string{"--plot", "a.bmp"}, want: "--plot: a.bmp: want a file that ends in .svg or .png"},
		"no folder":        {args: []string{"--plot", "/nowhere/a.svg"}, want: "--plot: stat /nowhere"},
		"unknown flag":     {args: []string{"--colour"}, want: "unknown flag"},
		"no runs":          {args: []string{"--runs", "0"}, want: "--runs: must be positive"},
		"no load":          {args: []string{"--load", "0"}, want: "--load: 0"},
		"load is no load":  {args: []string{"--load", "NaN"}, want: "--load: NaN"},
		"huge load":        {args: []string{"--load", "1e9"}, want: "--load: 1e+09"},
		"no copies":        {args: []string{"--replicate", "0"}, want: "--replicate: 0"},
		"text for a load":  {args: []string{"--load", "much"}, want: "--load"},
		"missing file":     {args: []string{"--nodes", "nowhere.csv"}, want: "nowhere.csv"},
		"no file":          {args: []string{"--pods", ""}, want: "--nodes and --pods are required"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.nodes == "" {
				c.nodes = nodeRows
			}
			if c.pods == "" {
				c.pods = podRows
			}
			_, args := simulateFiles(t, c.nodes, c.pods)
			out, code, err := gshare(t, append(args, c.args...)...)
			if err == nil || code != 2 || !strings.Contains(err.Error(), c.want) {
				t.Errorf("code %d, error %v, want 2 and %q", code, err, c.want)
			}
			if out != "" {
				t.Errorf("wrote %q", out)
			}
		})
	}
}
