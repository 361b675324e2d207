package store

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestPythonModules runs the tests of the Python modules that need no device: of safetensors files, and of the load format for vLLM, with stand-ins for
// PyTorch and vLLM. Where PyTorch is installed, they use it, too.
func TestPythonModules(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is not installed")
	}
	t.Parallel()
	cmd := exec.Command(python, "-m", "unittest", "test_gshare_safetensors", "test_gshare_vllm")
	cmd.Dir = "../../hook/store"
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "\nOK") {
		t.Errorf("%v: %s", err, out)
	}
}
