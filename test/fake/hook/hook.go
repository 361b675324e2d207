// Package hook makes a file that passes for the hook and does nothing when a program loads it.
package hook

import (
	"os/exec"
	"strings"
	"testing"
)

// Write writes the library to a path. It needs gcc.
func Write(t testing.TB, path string) {
	t.Helper()
	Compile(t, path, "void cuLaunchKernel(void) {}", "-Wl,-soname,libgshare.so")
}

// Compile compiles a library from one source with flags of gcc.
func Compile(t testing.TB, path, source string, flags ...string) {
	t.Helper()
	command := exec.Command("gcc", append([]string{"-shared", "-fPIC", "-nostdlib", "-o", path, "-x", "c"}, append(flags, "-")...)...)
	command.Stdin = strings.NewReader(source)
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
}
