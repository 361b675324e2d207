package dmem

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// driver is a program that notes how it is called, and a mount of cgroups.
func driver(t *testing.T, script string) (l Limiter, calls func() string) {
	t.Helper()
	dir := t.TempDir()
	notes := filepath.Join(dir, "calls")
	l = Limiter{Program: filepath.Join(dir, "nvidia-smi"), Mount: dir}
	for name, text := range map[string]string{"nvidia-smi": "#!/bin/sh\necho \"$@\" >>" + notes + "\n" + script, "cgroup.controllers": "cpu dmem\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return l, func() string {
		text, _ := os.ReadFile(notes)
		return strings.ReplaceAll(string(text), dir, "MOUNT")
	}
}

const answer = "echo 'namespace: x'; echo 'soft limit: 0 MiB'; echo 'hard limit: 1536 MiB'; echo 'current used: 12 MiB'\n"

func TestLimit(t *testing.T) {
	l, calls := driver(t, answer)
	if err := l.Available(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := l.Limit(t.Context(), "/kubepods/pod1/c", "GPU-a", 1536*share.MiB-1)
	if err != nil || got != 1536*share.MiB {
		t.Errorf("%d, %v", got, err)
	}
	want := "memory-limits --help\nmemory-limits --set --soft-limit 0 --hard-limit 1536 --namespace MOUNT/kubepods/pod1/c -i GPU-a\n" +
		"memory-limits --get --namespace MOUNT/kubepods/pod1/c -i GPU-a\n"
	if got := calls(); got != want {
		t.Errorf("called\n%swant\n%s", got, want)
	}
}

func TestMissing(t *testing.T) {
	old, _ := driver(t, "echo 'Invalid argument: memory-limits'; exit 2\n")
	first, _ := driver(t, answer)
	if err := os.Remove(filepath.Join(first.Mount, "cgroup.controllers")); err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]Limiter{"no program": {Program: "/nowhere/nvidia-smi", Mount: old.Mount}, "an older driver": old, "version 1 of cgroups": first} {
		t.Run(name, func(t *testing.T) {
			if err := l.Available(t.Context()); !errors.Is(err, ErrMissing) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestSilent: a driver that does not answer is not one without limits.
func TestSilent(t *testing.T) {
	l, calls := driver(t, "exec sleep 60\n")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for calls() == "" {
			runtime.Gosched()
		}
		cancel()
	}()
	if err := l.Available(ctx); err == nil || errors.Is(err, ErrMissing) {
		t.Error(err)
	}
}

// TestNotLimited: what the driver does not confirm is no limit.
func TestNotLimited(t *testing.T) {
	for name, script := range map[string]string{
		"refused": "echo 'not found'; exit 1\n", "no limit": "echo 'hard limit: max'\n", "silence": "", "another unit": "echo 'hard limit: 8 GiB'\n",
		"nothing": "echo 'hard limit: 0 MiB'\n", "overflow": "echo 'hard limit: 99999999999999 MiB'\n",
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := driver(t, script)
			if got, err := l.Limit(t.Context(), "/c", "GPU-a", share.MiB); err == nil {
				t.Errorf("%s: limited to %d", name, got)
			}
		})
	}
}

// FuzzHardLimit: whatever the driver says is a limit within bounds, or none.
func FuzzHardLimit(f *testing.F) {
	for _, text := range []string{"", "hard limit: 8192 MiB\n", " hard limit : 1 MiB", "hard limit:-5 MiB", "hard limit: max"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if got, err := hardLimit(text); err == nil && (got < share.MiB || got > share.MaxMemory) {
			t.Errorf("%q: %d", text, got)
		}
	})
}
