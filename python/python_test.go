// Package python runs the tests of the Python package gshare under go test. There is no Go in the package itself.
package python

import (
	"flag"
	"os"
	"os/exec"
	"strings"
	"testing"
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
