package mps

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestAvailable(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := (Daemons{}).Available(); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("got %v, want ErrNotInstalled", err)
	}
	if err := (Daemons{Simulated: true}).Available(); err != nil {
		t.Errorf("simulated: %v", err)
	}
	if err := (Daemons{Simulated: true, Program: "/nowhere/mps"}).Available(); !errors.Is(err, ErrNotInstalled) {
		t.Errorf("simulated, with a missing program: got %v, want ErrNotInstalled", err)
	}
}

func TestEnvironment(t *testing.T) {
	got := ClientEnvironment("/d/GPU-7", share.Share{SMRequest: 100, SMLimit: 125, Memory: 1024 * share.MiB})
	want := []string{
		"CUDA_MPS_PIPE_DIRECTORY=/d/GPU-7", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=12.5", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=1376M",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// FuzzRecords: each line that is not blank is a record, and has a first field.
func FuzzRecords(f *testing.F) {
	for _, text := range []string{"", "a,b\n", "\n\n a \r\n", ",,\n", "12,shares,0,x,python a,b.py"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range parseRecords(text) {
			if len(r) == 0 || strings.ContainsAny(strings.Join(r, ""), ",\n") {
				t.Errorf("%q: %q", text, r)
			}
		}
	})
}

// FuzzPIDs: any answer of a daemon is parsed to valid PIDs or to none.
func FuzzPIDs(f *testing.F) {
	for _, text := range []string{"", "12\n13\n", "12", " 12 \r\n", "-1\n0\n", "99999999999999999999\n", "PID ID SERVER\n1 2 3\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, pid := range parsePIDs(text) {
			if pid < 1 {
				t.Errorf("%q: %d", text, pid)
			}
		}
	})
}
