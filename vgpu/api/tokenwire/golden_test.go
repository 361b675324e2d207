package tokenwire

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "write the golden frames anew; only for a new version of the protocol")

// golden has one frame of each type, and a second one of each type with optional parts.
var golden = map[string]struct {
	Header
	Message
}{
	"hello": {Header{Sequence: 1}, &Hello{HookVersion: 3, PID: 4711, DriverVersion: 13010, Capabilities: 5}},
	"hello_again": {Header{Sequence: 1}, &Hello{
		HookVersion: 3, PID: 4711, DriverVersion: 13010, Session: 0x1122334455667788,
		Devices: []string{"GPU-8a5f0d3e-1c4b-4f6a-9e2d-7b3c5a1f0e9d", "MIG-0c6f3a9e-5b1d-4e8a-a7c2-3d9f6b0e4a81"},
	}},
	"welcome": {Header{Sequence: 1, Generation: 42}, &Welcome{
		Session: 0x8877665544332211, Mode: ModeTime, VGPUs: []VGPU{
			{UUID: "GPU-8a5f0d3e-1c4b-4f6a-9e2d-7b3c5a1f0e9d", MemoryLimit: 8 << 30},
			{UUID: "MIG-0c6f3a9e-5b1d-4e8a-a7c2-3d9f6b0e4a81", Index: 1, Flags: 1, MemoryLimit: 1 << 40},
		},
	}},
	"need":     {Header{Sequence: 7, Generation: 42}, &Need{VGPU: 1, Want: 2_000_000, WaitingSince: 123_456_789_012}},
	"bye":      {Header{Sequence: 9, Generation: 42}, &Bye{}},
	"snapshot": {Header{Sequence: 2, Generation: 43}, &Snapshot{VGPU: 1, Memory: 3 << 30, Busy: 9_876_543_210}},
	"error":    {Header{Sequence: 1, Generation: 42}, &Error{Code: 1, Text: "process 12 does not belong here"}},
}

func goldenFile(name string) string { return filepath.Join("testdata", name+".frame") }

var ignoreCount = cmpopts.IgnoreFields(Welcome{}, "count")

func TestGolden(t *testing.T) {
	for name, want := range golden {
		t.Run(name, func(t *testing.T) {
			frame, err := Encode(want.Header, want.Message)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				if err := os.WriteFile(goldenFile(name), frame, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			stored, err := os.ReadFile(goldenFile(name))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(stored, frame); diff != "" {
				t.Errorf("the frame differs from the stored one:\n%s", diff)
			}
			header, message, err := Decode(stored)
			if err != nil {
				t.Fatal(err)
			}
			want.Major, want.Minor = Major, Minor
			if diff := cmp.Diff(want.Header, header); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(want.Message, message, ignoreCount); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// buildC compiles a C program of testdata against the hook's header.
func buildC(t *testing.T, source string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is missing")
	}
	program := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-I../../../hook/include", "-o", program,
		filepath.Join("testdata", source))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestGoldenInC checks that the C side decodes each frame into its own structures and encodes the same frame.
func TestGoldenInC(t *testing.T) {
	program := buildC(t, "recode.c")
	for name := range golden {
		t.Run(name, func(t *testing.T) {
			stored, err := os.ReadFile(goldenFile(name))
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(program, goldenFile(name))
			cmd.Stderr = os.Stderr
			recoded, err := cmd.Output()
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(stored, recoded); diff != "" {
				t.Errorf("C encodes another frame:\n%s", diff)
			}
		})
	}
}

// TestCRefuses is the negative control: C and Go refuse damaged frames.
func TestCRefuses(t *testing.T) {
	program := buildC(t, "recode.c")
	stored, err := os.ReadFile(goldenFile("welcome"))
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int{0, 4, 12, headerSize + 12} { // magic, major, length, number of vGPUs
		damaged := append([]byte{}, stored...)
		damaged[at]++
		name := filepath.Join(t.TempDir(), "damaged")
		if err := os.WriteFile(name, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(program, name).Output(); err == nil {
			t.Errorf("byte %d: C accepted it and wrote %d bytes", at, len(out))
		}
		if _, m, err := Decode(damaged); err == nil {
			t.Errorf("byte %d: Go accepted it: %+v", at, m)
		}
	}
}
