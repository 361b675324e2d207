package mps

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// fakeDaemon puts a program in the path that notes how it is called, and runs for a device once it was started for it.
func fakeDaemon(t *testing.T) (log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	script := `#!/bin/sh
input=$(cat)
echo "$CUDA_VISIBLE_DEVICES $CUDA_MPS_PIPE_DIRECTORY [$*] $input" >>` + log + `
running=$CUDA_MPS_PIPE_DIRECTORY/running
case "$1$input" in
-d) touch $running ;;
quit) rm $running ;;
*) test -e $running || { echo not there >&2; exit 1; } ;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return log
}

func TestDaemonLifetime(t *testing.T) {
	log := fakeDaemon(t)
	d := Daemons{Dir: t.TempDir()}
	if err := d.Available(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it runs already
		if err := d.Start("GPU-7"); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Stop("GPU-7"); err != nil {
		t.Fatal(err)
	}
	if err := d.Stop("GPU-7"); err == nil || !strings.Contains(err.Error(), "GPU-7") {
		t.Errorf("stopping nothing: %v", err)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	head := "GPU-7 " + filepath.Join(d.Dir, "GPU-7")
	asks := head + " [] get_default_active_thread_percentage"
	want := []string{asks, head + " [-d] ", asks, head + " [] quit", head + " [] quit"}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")); diff != "" {
		t.Error(diff)
	}
}

func TestMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := (Daemons{}).Available(); !errors.Is(err, ErrMissing) {
		t.Errorf("got %v", err)
	}
	d := Daemons{Simulated: true}
	if err := errors.Join(d.Available(), d.Start("GPU-7"), d.Stop("GPU-7")); err != nil {
		t.Errorf("simulated: %v", err)
	}
}

func TestEnvironment(t *testing.T) {
	got := Daemons{Dir: "/d"}.Environment("GPU-7", share.Share{SMRequest: 100, SMLimit: 125, Memory: 1024 * share.MiB})
	want := []string{
		"CUDA_MPS_PIPE_DIRECTORY=/d/GPU-7", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=12.5", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1536M",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
