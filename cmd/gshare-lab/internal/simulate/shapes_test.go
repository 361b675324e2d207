package simulate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

// simulateShapesOf runs gshare-lab simulate shapes and returns its output and its exit code, 0 without an error.
func simulateShapesOf(args ...string) (out string, code int, err error) {
	cmd := root()
	var text bytes.Buffer
	cmd.SetOut(&text)
	cmd.SetArgs(append([]string{"simulate", "shapes"}, args...))
	if err = cmd.Execute(); err != nil {
		code = cli.ExitCode(err)
	}
	return text.String(), code, err
}

func shapesFigures(t *testing.T, args ...string) map[string]any {
	t.Helper()
	out, _, err := simulateShapesOf(append(args, "-o", "json")...)
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]any{}
	if err := json.Unmarshal([]byte(out), &figures); err != nil {
		t.Fatal(err, out)
	}
	return figures
}

func shapesFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "shapes.csv")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestSimulateShapes(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want map[string]float64
	}{
		// Two shares of 60 % of the SMs never run together, and two of 40 % of the time fit a window, a third does not.
		"from a file": {
			args: []string{"--family", shapesFile(t, "quota,sm,mem\n40,60,0\n"), "--pods", "4", "--policy", "slot"},
			want: map[string]float64{"gpus": 2, "lower_bound": 1.6, "ratio": 1.25, "density_percent": 48},
		},
		"memory": {
			args: []string{"--family", shapesFile(t, "quota,sm,mem\n10,10,30720\n"), "--pods", "4", "--policy", "mra", "--slice-memory", "30"},
			want: map[string]float64{"gpus": 4, "lower_bound": 4, "ratio": 1, "density_percent": 1},
		},
		"reserve": {
			args: []string{"--family", shapesFile(t, "quota,sm,mem\n50,60,0\n"), "--pods", "4", "--policy", "slot", "--reserve", "0.05"},
			want: map[string]float64{"gpus": 4, "lower_bound": 2 / 0.95, "ratio": 1.9, "density_percent": 30},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := shapesFigures(t, c.args...)
			for figure, want := range c.want {
				if v, ok := got[figure].(float64); !ok || v < want-1e-6 || v > want+1e-6 {
					t.Errorf("%s: %v, want %v", figure, got[figure], want)
				}
			}
			if v, ok := got["ns_per_pod"].(float64); !ok || v <= 0 {
				t.Errorf("ns_per_pod: %v", got["ns_per_pod"])
			}
		})
	}
}

func TestSimulateShapesChurn(t *testing.T) {
	got := shapesFigures(t, "--policy", "slot", "--pods", "600", "--churn")
	for _, figure := range []string{"gpus", "density_percent", "refused_percent", "ns_per_pod"} {
		if v, ok := got[figure].(float64); !ok || v <= 0 {
			t.Errorf("%s: %v", figure, got[figure])
		}
	}
}

func TestSimulateShapesDraws(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shapes.svg")
	out, _, err := simulateShapesOf("--pods", "50", "--policy", "all", "--runs", "2", "--plot", file)
	if err != nil {
		t.Fatal(err)
	}
	svg, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{"mra", "maxrects-bssf", "replan", "slot"} {
		if !strings.Contains(out, policy) || !bytes.Contains(svg, []byte(policy)) {
			t.Errorf("%s is missing in the table or in the picture", policy)
		}
	}
}

func TestSimulateShapesRefuses(t *testing.T) {
	const head = "quota,sm,mem\n"
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"quota 0":         {[]string{"--family", shapesFile(t, head+"40,12,0\n0,12,0\n")}, "shapes.csv: line 3: quota 0"},
		"sm above 100":    {[]string{"--family", shapesFile(t, head+"40,101,0\n")}, "shapes.csv: line 2: quota 40 % and sm 101"},
		"memory":          {[]string{"--family", shapesFile(t, head+"40,12,40000\n"), "--slice-memory", "24"}, "shapes.csv: line 2: memory"},
		"malformed":       {[]string{"--family", shapesFile(t, head+"40;12;0\n")}, "shapes.csv: record on line 2"},
		"no such file":    {[]string{"--family", "nowhere.csv"}, "nowhere.csv"},
		"no such family":  {[]string{"--family", "nothing"}, `unknown family "nothing"`},
		"openb, no file":  {[]string{"--family", "openb", "--openb-pods", "none.csv"}, "none.csv"},
		"openb, bad file": {[]string{"--family", "openb", "--openb-pods", shapesFile(t, "name\n")}, "no column"},
		"pods":            {[]string{"--pods", "-1"}, "--pods"},
		"reserve":         {[]string{"--reserve", "NaN"}, "--reserve"},
		"slice memory":    {[]string{"--slice-memory", "0"}, "--slice-memory"},
		"policy":          {[]string{"--policy", "best"}, "--policy"},
		"flag":            {[]string{"--wrong"}, "--wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			out, code, err := simulateShapesOf(c.args...)
			if code != 2 || !strings.Contains(err.Error(), c.want) || out != "" {
				t.Errorf("exit code %d, error %v, output %q; want 2 and %q", code, err, out, c.want)
			}
		})
	}
}

// TestReadOpenb: openb's default list has 3,078 pods that request a part of one GPU.
func TestReadOpenb(t *testing.T) {
	pods, err := readOpenb(openbPods)
	if err != nil || len(pods) != 3078 {
		t.Errorf("%d pods, %v, want 3078", len(pods), err)
	}
}
