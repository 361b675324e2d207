package main

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var lanes = flag.Bool("full", false, "run the dry run of the GPU lane too")

// TestLane runs the GPU lane on the fake driver and the fake MPS, from end to end. Its kernels take no time, so only what does not
// depend on time is looked at: that each experiment ends, that nothing is missed by the hook, the memory limit, and that nobody
// ends with the agent. It runs with the MPS of either kind of driver.
func TestLane(t *testing.T) {
	if !*lanes {
		t.Skip("the dry run of the GPU lane takes long on a busy machine: it runs with -full")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	folder := built(t)
	node := exec.Command("go", "build", "-o", filepath.Join(folder, "gshare-node"), "./cmd/gshare-node")
	node.Dir = "../.."
	if text, err := node.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, driver := range []string{"", "r615"} { // the latter has MPS v3
		t.Run("mps"+driver, func(t *testing.T) { runLane(t, python, folder, driver) })
	}
}

func runLane(t *testing.T, python, folder, driver string) {
	t.Helper()
	out := t.TempDir()
	lane := exec.Command(python, "../../test/gpu/lane.py", "--dry-run", "--seconds", "0.05", "--out", out,
		"--bin", folder, "--fake", folder, "--fake-mps", filepath.Join(folder, driver, "nvidia-cuda-mps-control"), "--hook", filepath.Join(folder, "libgshare.so"))
	lane.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if text, err := lane.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	files, err := filepath.Glob(filepath.Join(out, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	var results struct {
		Experiments struct {
			Coverage struct {
				CUPTI int `json:"counted_by_cupti"`
				Hook  int `json:"counted_by_hook"`
			}
			Memory struct {
				Allocated int `json:"allocated_mib"`
			}
			Crash struct{ Pods, Ended int }
		}
	}
	if err := json.Unmarshal(text, &results); err != nil {
		t.Fatal(err)
	}
	e := results.Experiments
	if e.Coverage.CUPTI == 0 || e.Coverage.Hook != e.Coverage.CUPTI {
		t.Errorf("the hook counts %d of %d launches", e.Coverage.Hook, e.Coverage.CUPTI)
	}
	if e.Memory.Allocated != 2048 || e.Crash.Pods != 3 || e.Crash.Ended != 0 {
		t.Errorf("%+v", e)
	}
}
