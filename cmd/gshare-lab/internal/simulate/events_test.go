package simulate

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

const twoEvents = `{'Time': '2024-01-01 00:00:00', 'Action': 'start', 'Instance': {'service_name': 'a', 'type': 'inference', 'gpu_num': 1, 'sm_requests': 0.25, 'sm_limits': 0.5, 'memory': [10]}}
{'Time': '2024-01-01 00:00:10', 'Action': 'start', 'Instance': {'service_name': 'b', 'type': 'training', 'gpu_num': 2, 'sm_requests': 0.5, 'sm_limits': 0.75, 'memory': [20, 20]}}
`

// simulateEventsOf runs the command on a list and gives what it prints.
func simulateEventsOf(t *testing.T, list string, args ...string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "list.txt")
	if err := os.WriteFile(file, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	cmd := root()
	cmd.SetArgs(append([]string{"simulate", "events", "--file", file, "-o", "json"}, args...))
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestSimulateEvents(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "gpus.svg")
	text, err := simulateEventsOf(t, twoEvents, "--policy", "all", "--plot", picture)
	if err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	peaks := map[any]float64{}
	for _, run := range got {
		peaks[run["policy"]] = run["peak_gpus"].(float64)
		for _, name := range []string{"mean_gpus", "sm_fragmentation", "memory_fragmentation", "refused", "decisions_per_second"} {
			if _, ok := run[name]; !ok {
				t.Errorf("%v: no %s", run["policy"], name)
			}
		}
	}
	if len(got) != 6 || peaks["exclusive"] != 3 || peaks["limit"] != 3 || peaks["complementary"] != 2 || peaks["gshare"] != 2 {
		t.Errorf("peaks %v", peaks)
	}
	drawn, err := os.ReadFile(picture)
	if err != nil || !bytes.Contains(drawn, []byte("complementary")) {
		t.Errorf("no picture with the policies: %v", err)
	}
}

// Flags reach the cluster: on GPUs of 25 GiB nothing fits beside anything; two GPUs do not hold three shares then.
func TestSimulateEventsFlags(t *testing.T) {
	text, err := simulateEventsOf(t, twoEvents, "--policy", "complementary", "--memory", "25", "--nodes", "1", "--gpus-per-node", "2")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text, `"refused": 1`) || !strings.Contains(text, `"peak_gpus": 1`) {
		t.Error(text)
	}
	text, err = simulateEventsOf(t, twoEvents, "--policy", "complementary", "--gamma", "100")
	if err != nil || !strings.Contains(text, `"peak_gpus": 3`) {
		t.Errorf("%v: %s", err, text)
	}
}

func TestSimulateEventsRefuses(t *testing.T) {
	lines := strings.SplitAfter(twoEvents, "\n")
	for name, c := range map[string]struct {
		list, want string
		args       []string
	}{
		"a malformed line": {lines[0] + "nonsense\n", "list.txt: line 2: ", nil},
		"a bad value":      {strings.Replace(twoEvents, "'sm_requests': 0.5", "'sm_requests': 5", 1), "list.txt: line 2: sm_requests 5", nil},
		"no events":        {"", "line 1: no events", nil},
		"memory":           {twoEvents, "--memory", []string{"--memory", "0"}},
		"nodes":            {twoEvents, "--nodes", []string{"--nodes", "-1"}},
		"GPUs":             {twoEvents, "--gpus-per-node", []string{"--gpus-per-node", "65"}},
		"gamma":            {twoEvents, "--gamma", []string{"--gamma", "99"}},
		"policy":           {twoEvents, "--policy", []string{"--policy", "best"}},
		"no file":          {twoEvents, "none.txt", []string{"--file", "none.txt"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := simulateEventsOf(t, c.list, c.args...)
			if err == nil || !strings.Contains(err.Error(), c.want) || cli.ExitCode(err) != 2 {
				t.Errorf("error %v with exit code %d, want %q and 2", err, cli.ExitCode(err), c.want)
			}
		})
	}
	if _, err := simulateEventsOf(t, twoEvents); err != nil || !slices.Contains(simulateEvents().policies, "gshare") {
		t.Errorf("the control fails too: %v", err)
	}
}
