package hook

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestPython runs the tests of the Python modules for programs that use a model store.
func TestPython(t *testing.T) {
	program, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	cmd := exec.Command(program, "-W", "error::ResourceWarning", "-m", "unittest")
	cmd.Dir, cmd.Env = "store", append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), "Ran 0 tests") {
		t.Errorf("%v\n%s", err, out)
	}
}
