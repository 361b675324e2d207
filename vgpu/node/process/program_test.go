package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

func TestProgram(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sleep") // by a name of one's own: it may be a part of a larger program
	if err := os.WriteFile(file, text, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(file, "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	if got := Program(cmd.Process.Pid); got != "sleep" {
		t.Errorf("%q, want sleep", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := Program(cmd.Process.Pid); got != "sleep" {
		t.Errorf("%q after the file is gone, want sleep", got)
	}
	if got := Program(1 << 30); got != "" {
		t.Errorf("nobody runs %q", got)
	}
}
