// Package python runs the tests of the Python package gshare under go test. There is no Go in the package itself.
package python

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/test/native"
)

var full = flag.Bool("full", false, "run all tests of the package, not those that take less than about a second in all")

// short are the tests that run without -full.
var short = []string{
	"tests.test_build", "tests.test_codec", "tests.test_graph", "tests.test_examples.TestExamples.test_changed_lines",
	"tests.test_run.TestRun.test_killed_idle", "tests.test_run.TestRun.test_not_transferable", "tests.test_serve.TestServer",
}

// python runs python3 and returns what it says, or skips the test where it is not installed.
func python(t *testing.T, arguments ...string) string {
	t.Helper()
	program, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	cmd := exec.Command(program, arguments...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("python3 %s: %v\n%s", strings.Join(arguments, " "), err, out)
	}
	return string(out)
}

func TestPython(t *testing.T) {
	arguments := []string{"-W", "error::ResourceWarning", "-m", "unittest"}
	if !*full {
		arguments = append(arguments, short...)
	}
	out := python(t, arguments...)
	if strings.Contains(out, "Ran 0 tests") || !strings.Contains(out, "\nOK") {
		t.Errorf("the tests of Python:\n%s", out)
	}
}

// TestCut goes all the way: Python measures a function, Go cuts it for two slices that hold a part of it each, and Python runs the stages.
func TestCut(t *testing.T) {
	folder := t.TempDir()
	build, stages := filepath.Join(folder, "build.json"), filepath.Join(folder, "stages.json")
	const function = "examples/words_stages.py:Words"
	python(t, "-m", "gshare", "build", function, "-o", build)
	text, err := os.ReadFile(build)
	if err != nil {
		t.Fatal(err)
	}
	b, err := pipeline.ReadBuild(text)
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Function(1)
	if err != nil {
		t.Fatal(err)
	}
	part := pipeline.Kind{Name: "cpu", Compute: 1, Memory: f.Whole().Memory - 1}
	ranking, err := pipeline.Rank(f, []pipeline.Kind{part})
	if err != nil {
		t.Fatal(err)
	}
	assignment, err := ranking.Assign([]pipeline.Slice{{ID: "MIG-a", Kind: part}, {ID: "MIG-b", Kind: part}}, pipeline.Demand{SLO: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	text, err = json.Marshal(ranking.Layout(assignment))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stages, text, 0o600); err != nil {
		t.Fatal(err)
	}
	const program = `import sys, gshare
with gshare.run(sys.argv[1], sys.argv[2]) as f:
    print(len(f.pids), f("a share of the share of a GPU", timeout=60))`
	if got, want := python(t, "-c", program, function, stages), "2 ['share', 'gpu', 'a']\n"; got != want {
		t.Errorf("%q, want %q, of %s", got, want, text)
	}
}

// TestDriver runs the example that keeps its weights in device memory, on a CUDA driver without a GPU.
func TestDriver(t *testing.T) {
	if !*full {
		t.Skip("runs with -full, and compiles the driver")
	}
	folder := t.TempDir()
	if err := native.Build("..", folder, native.Driver); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LD_LIBRARY_PATH", folder)
	if out := python(t, "-m", "unittest", "tests.test_examples.TestExamples.test_rows"); !strings.Contains(out, "Ran 1 test") || strings.Contains(out, "skipped") {
		t.Errorf("the example:\n%s", out)
	}
}

// TestSpec: what Python prints of what it has measured is a pipeline that gshare takes.
func TestSpec(t *testing.T) {
	build := filepath.Join(t.TempDir(), "build.json")
	for _, kind := range []string{"1g.10gb", "3g.40gb"} {
		python(t, "-m", "gshare", "build", "examples/words_stages.py:Words", "-o", build, "--kind", kind)
	}
	text := "apiVersion: serving.gshare.dev/v1alpha1\nkind: GPUFunction\nmetadata: {name: words}\nspec:\n  slo: {latency: 1s}\n" +
		"  scaling: {requestsPerSecond: 10}\n  template: {spec: {containers: [{name: server, image: words}]}}\n" + python(t, "-m", "gshare", "spec", build)
	f := &api.GPUFunction{}
	if err := yaml.UnmarshalStrict([]byte(text), f); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if _, err := f.CompleteForCluster(0); err != nil {
		t.Errorf("%v:\n%s", err, text)
	}
	if s := f.Spec.Pipeline.Stages; len(s) != 3 || s[2].Name != "choose" || len(s[2].DependsOn) != 2 || len(s[2].Times) != 2 || s[2].Bytes() < 301<<20 {
		t.Errorf("stages %+v of\n%s", s, text)
	}
}

// TestTypes holds the annotations against the code, where mypy is installed.
func TestTypes(t *testing.T) {
	if !*full {
		t.Skip("runs with -full, and needs mypy")
	}
	if err := exec.Command("python3", "-c", "import mypy").Run(); err != nil {
		t.Skip("mypy is not installed")
	}
	python(t, "-m", "mypy", "--cache-dir", t.TempDir())
}
