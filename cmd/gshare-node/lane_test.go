package main

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var full = flag.Bool("full", false, "run what takes minutes too: the dry run of the GPU lane, 100,000 requests while servers end, and 1,000 cycles of scaling")

// TestLane runs the GPU lane on the fake driver and the fake MPS, from end to end: once as `make test-gpu` does it, and once with the
// MPS of a driver that has version 3. The fake's kernels take no time, so only what does not depend on time is compared: the launches
// that the hook counts, the memory limit, and that no program ends with the agent.
func TestLane(t *testing.T) {
	if !*full {
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
	lane := func(driver, hook, out string) *exec.Cmd {
		return exec.Command(python, "../../test/gpu/lane.py", "--dry-run", "--seconds", "0.05", "--pods", "1,8,9", "--out", out, "--bin", folder,
			"--fake", folder, "--fake-mps", filepath.Join(folder, driver, "nvidia-cuda-mps-control"), "--hook", hook)
	}
	t.Run("make test-gpu", func(t *testing.T) {
		out := t.TempDir()
		checkLane(t, out, exec.Command("make", "-C", "../..", "test-gpu", "ARGS=--dry-run --seconds 0.05 --pods 1,8,9 --out "+out))
	})
	t.Run("MPS version 3", func(t *testing.T) {
		out := t.TempDir()
		checkLane(t, out, lane("r615", filepath.Join(folder, "libgshare.so"), out))
	})
	t.Run("failures keep the results", func(t *testing.T) {
		out := t.TempDir()
		lane := lane("", filepath.Join(folder, "no-such-hook.so"), out)
		text, err := exec.Command(lane.Path, append(lane.Args[1:], "--only", "memory,graphs")...).CombinedOutput()
		if err == nil {
			t.Fatalf("without a hook the lane succeeds: %s", text)
		}
		var results struct {
			Experiments map[string]struct{ Failed string }
		}
		readResults(t, out, &results)
		if e := results.Experiments; e["memory"].Failed == "" || e["graphs"].Failed == "" {
			t.Errorf("results after failures: %+v\n%s", e, text)
		}
	})
}

func readResults(t *testing.T, folder string, results any) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("results: %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, results); err != nil {
		t.Fatal(err)
	}
}

func checkLane(t *testing.T, out string, lane *exec.Cmd) {
	t.Helper()
	lane.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if text, err := lane.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var results struct {
		Experiments struct {
			Coverage map[string]struct {
				CUPTI int `json:"counted_by_cupti"`
				Hook  int `json:"counted_by_hook"`
			}
			Memory map[string]struct {
				Allocated int `json:"allocated_mib"`
			}
			Crash   struct{ Pods, Ended int }
			Profile struct {
				Trials []struct{ Point struct{ Throughput float64 } }
			}
			Serving struct {
				Served struct{ Answered, Failed, Starts int }
			}
			Store map[string]struct {
				One   float64                  `json:"with_first_mib"`
				Two   float64                  `json:"with_second_mib"`
				Left  float64                  `json:"left_mib"`
				Alone struct{ Unchanged bool } `json:"without_store"`
				Write struct {
					Copy struct {
						Code   int
						Beside struct{ Unchanged bool }
					}
				}
			}
			Checkpoint map[string]struct {
				Unchanged bool
			}
			Contexts map[string]struct {
				Code        int
				Differences []string
			}
		}
	}
	readResults(t, out, &results)
	e := results.Experiments
	for part, c := range e.Coverage {
		if c.CUPTI == 0 || c.Hook != c.CUPTI {
			t.Errorf("the hook counts %d of %d launches (%s)", c.Hook, c.CUPTI, part)
		}
	}
	if p := e.Profile.Trials; len(p) == 0 || p[0].Point.Throughput == 0 {
		t.Errorf("gshare profile: %+v", p)
	}
	if s := e.Serving.Served; s.Answered == 0 || s.Failed != 0 || s.Starts == 0 { // on a busy machine, requests may be refused as late
		t.Errorf("gshare serve: %+v", s)
	}
	if len(e.Coverage) != 2 {
		t.Errorf("coverage: %+v", e.Coverage)
	}
	for how, s := range e.Store {
		if s.One != 256 || s.Two != 256 || s.Left != 0 || !s.Alone.Unchanged || s.Write.Copy.Code == 0 || !s.Write.Copy.Beside.Unchanged {
			t.Errorf("the model store, %s: %+v", how, s)
		}
	}
	if len(e.Store) != 2 {
		t.Errorf("the model store: %+v", e.Store)
	}
	if c := e.Checkpoint; !c["plain"].Unchanged || !c["mps"].Unchanged || !c["share"].Unchanged {
		t.Errorf("checkpoint: %+v", c)
	}
	for _, way := range []string{"plain", "share"} {
		if c, ran := e.Contexts[way]; !ran || c.Code != 0 || len(c.Differences) != 0 {
			t.Errorf("contexts, %s: %+v", way, e.Contexts)
		}
	}
	if e.Memory["10"].Allocated != 2048 || e.Memory["100"].Allocated != 2048 || e.Crash.Pods != 3 || e.Crash.Ended != 0 {
		t.Errorf("%+v", e)
	}
}

// TestLaneEndsPrograms: the lane waits for no program for ever, and leaves none that holds a share to the next experiment.
func TestLaneEndsPrograms(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	const script = `
import argparse, pathlib, sys
sys.dont_write_bytecode = True
sys.path.insert(0, "../../test/gpu")
import machine
m = machine.Machine(argparse.Namespace(dry_run=False, seconds=0, fake_mps=None), pathlib.Path(sys.argv[1]))
m.mps = "true"
hung = machine.Program([sys.executable, "-c", "input()"], None, 0.1)
try:
    hung.line()
    sys.exit("a program that says nothing was waited for")
except machine.Failed:
    assert not hung.alive()
left, ended = m.plain([sys.executable, "-c", "input()"]), m.plain(["true"], 100)
ended.process.wait()
assert left.alive() and m.plain_mps
m.end_programs()
assert not left.alive() and not m.programs and not m.plain_mps
m.stop()
`
	if text, err := exec.Command(python, "-c", script, t.TempDir()).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, text)
	}
}
