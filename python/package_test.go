package python

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// packagers are where a Python with setuptools, wheel and pip may be.
var packagers = []string{"python3", "/usr/bin/python3"}

// TestPackage makes the source archive and the wheel, installs each without an index, and runs an example with it.
func TestPackage(t *testing.T) {
	if !*full {
		t.Skip("runs with -full: makes and installs packages for seconds")
	}
	program := packager(t)
	source := filepath.Join(t.TempDir(), "source") // the build writes beside what it reads
	if out, err := exec.Command("cp", "-rL", ".", source).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	made := t.TempDir()
	run := func(folder string, environment []string, arguments ...string) string {
		cmd := exec.Command(program, arguments...)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), environment...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", program, strings.Join(arguments, " "), err, out)
		}
		return string(out)
	}
	run(source, nil, "-c", "from setuptools import build_meta as b; b.build_sdist('"+made+"')")
	run(source, nil, "-c", "from setuptools import build_meta as b; b.build_wheel('"+made+"')")
	for _, name := range []string{"gshare-0.1.0.tar.gz", "gshare-0.1.0-py3-none-any.whl"} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			run(made, nil, "-m", "pip", "install", "--no-index", "--no-build-isolation", "--no-deps", "--target", folder, name)
			for _, file := range []string{"gshare/py.typed", "gshare/stage.py"} {
				if _, err := os.Stat(filepath.Join(folder, file)); err != nil {
					t.Error(err)
				}
			}
			example, err := filepath.Abs("examples/words_stages.py")
			if err != nil {
				t.Fatal(err)
			}
			if got, want := run(folder, []string{"PYTHONPATH=" + folder}, example), "['share', 'gpu', 'slice']\n"; got != want {
				t.Errorf("%q, want %q", got, want)
			}
			if got := run(folder, []string{"PYTHONPATH=" + folder}, "-c", "import gshare; print(gshare.__file__)"); !strings.HasPrefix(got, folder) {
				t.Errorf("%q is not in %s", got, folder)
			}
		})
	}
}

// packager returns a Python that can make packages, or skips the test.
func packager(t *testing.T) string {
	for _, program := range packagers {
		if exec.Command(program, "-c", "import setuptools, wheel, pip").Run() == nil {
			return program
		}
	}
	t.Skip("no python3 with setuptools, wheel and pip")
	return ""
}
