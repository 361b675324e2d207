package simulate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/test/published"
)

const servingFolder = "testdata/serving"

// runServing runs the command on the example.
func runServing(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := root()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{
		"simulate", "serving", "--trace", filepath.Join(servingFolder, "rates.txt"), "--profiles", filepath.Join(servingFolder, "example.yaml"),
	}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestSimulateServing(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "serving.svg")
	args := []string{"--duration", "60s", "--policy", "all", "--seed", "3", "-o", "json", "--plot", picture}
	text, err := runServing(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	missed := map[any]float64{}
	for _, run := range got {
		for _, name := range []string{
			"slo_violation_percent", "cold_starts", "gpu_seconds", "mig_seconds", "cost", "p50_ms", "p95_ms", "p99_ms", "requests",
		} {
			if v, ok := run[name].(float64); !ok || v < 0 {
				t.Errorf("%v: %s is %v", run["policy"], name, run[name])
			}
		}
		if run["requests"] != got[0]["requests"] || run["requests"].(float64) < 1000 || run["gpu_seconds"].(float64) <= 0 {
			t.Errorf("%v", run)
		}
		missed[run["policy"]] = run["slo_violation_percent"].(float64)
	}
	if len(missed) != 10 || missed["gshare"] > missed["lazy"] || missed["lazy"] > missed["eager"] || missed["pipelined"] > missed["monolithic"] {
		t.Errorf("%v", missed)
	}
	if again, err := runServing(t, args...); err != nil || again != text {
		t.Errorf("the same seed gave another result (%v)", err)
	}
	if svg, err := os.ReadFile(picture); err != nil || !bytes.Contains(svg, []byte("monolithic")) {
		t.Errorf("the picture names no policy (%v)", err)
	}
}

// TestServingUse: the file of --use has a line for each second of each run, and the parts of the latency are printed.
func TestServingUse(t *testing.T) {
	file := filepath.Join(t.TempDir(), "use.csv")
	text, err := runServing(t, "--duration", "20s", "--policy", "monolithic,pipelined,lazy", "--runs", "2", "--use", file)
	if err != nil {
		t.Fatal(err)
	}
	for _, figure := range []string{"queue_ms", "load_ms", "transfer_ms", "execution_ms"} {
		if !strings.Contains(text, figure) {
			t.Errorf("no %s in %s", figure, text)
		}
	}
	use, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(use)), "\n")
	if len(lines) != 1+2*2*20 || lines[0] != "policy,seed,second,total,occupied,active" || !strings.HasPrefix(lines[1], "monolithic,1,1,") || !strings.HasPrefix(lines[80], "pipelined,2,20,") {
		t.Errorf("%d lines: %q, %q, %q", len(lines), lines[0], lines[1], lines[len(lines)-1])
	}
	if _, err := runServing(t, "--use", filepath.Join(file, "below")); err == nil || !strings.Contains(err.Error(), "--use") {
		t.Errorf("no error for a file that cannot be written: %v", err)
	}
}

func TestSimulateServingUsageErrors(t *testing.T) {
	world := filepath.Join(t.TempDir(), "world.yaml")
	if err := os.WriteFile(world, []byte("gpus: 1\nfunctions: [{name: f, slo: 1, nonsense: 2}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "rates.txt")
	if err := os.WriteFile(bad, []byte("1\n-2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--trace", ""}, "--trace"},
		{[]string{"--trace", "nowhere"}, "nowhere"},
		{[]string{"--trace", bad}, bad + ": line 2, rate"},
		{[]string{"--profiles", world}, "nonsense"},
		{[]string{"--profiles", filepath.Join(servingFolder, "light.yaml"), "--geometry", "p9"}, "mig.geometries"},
		{[]string{"--profiles", filepath.Join(servingFolder, "calls.yaml"), "--policy", "lazy"}, "gpus"},
		{[]string{"--scale", "NaN"}, "--scale"},
		{[]string{"--scale", "1e6"}, "scale"},
		{[]string{"--duration", "-1s"}, "--duration"},
		{[]string{"--step", "2h"}, "--step"},
		{[]string{"--gpus", "-1"}, "gpus"},
		{[]string{"--data", "nowhere"}, "nowhere"},
		{[]string{"--policy", "magic"}, "magic"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			_, err := runServing(t, c.args...)
			if err == nil || cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v: %v, want %q and exit code 2", c.args, err, c.says)
			}
		})
	}
}

// TestServingWorlds runs the profiles files of RESULTS.md on the built-in data.
func TestServingWorlds(t *testing.T) {
	for file, c := range map[string]struct{ needs, policy string }{
		"scaling.yaml": {"dilu", "lazy"}, "light.yaml": {"parvagpu", "monolithic"}, "medium.yaml": {"parvagpu", "pipelined"},
		"heavy.yaml": {"parvagpu", "gshare"}, "calls.yaml": {"", "harmonybatch"},
	} {
		t.Run(file, func(t *testing.T) {
			args := []string{"--profiles", filepath.Join(servingFolder, file), "--duration", "10s", "--policy", c.policy, "--scale", "0.1"}
			switch c.needs {
			case "parvagpu":
				args = append(args, "--geometry", "p2")
			case "dilu":
				published.Read(t, "dilu/bs_sm_resnet152.csv")
			}
			if _, err := runServing(t, args...); err != nil {
				t.Error(err)
			}
		})
	}
}
