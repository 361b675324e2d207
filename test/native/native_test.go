package native

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// checkout returns the root of a checkout whose scripts build a file "out" from a source of the hook and append a line to a log. The user's cache
// is empty.
func checkout(t *testing.T) (root, log string) {
	t.Helper()
	root, log = t.TempDir(), filepath.Join(t.TempDir(), "log")
	t.Setenv("XDG_CACHE_HOME", filepath.Join(t.TempDir(), "cache"))
	t.Setenv("CC", filepath.Join(t.TempDir(), "cc"))
	write(t, os.Getenv("CC"), "#!/bin/sh\necho 1\n")
	script := func(source, out string) string {
		return `set -e; for out; do :; done; mkdir -p "$out"; cp ` + source + ` "$out/` + out + `"; echo "$0" >>` + log
	}
	for name, text := range map[string]string{
		"hook/fake/build.sh": script("hook/src/a.c", "out"),
		"hack/hook.sh":       script("hook/src/a.c", "out"),
		"hook/test/build.sh": script(`"$out/out"`, "test"),
		"hook/src/a.c":       "a", "hook/src/b.c": "", "hook/hook_test.go": "", "hook/README.md": "", "other": "",
	} {
		write(t, filepath.Join(root, name), text)
	}
	return root, log
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// built returns a folder into which the parts were built.
func built(t *testing.T, root string, parts ...Part) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "folder")
	if err := Build(root, folder, parts...); err != nil {
		t.Fatal(err)
	}
	return folder
}

// TestChanges: a change of anything that a build is made from leads to another build, and nothing else does.
func TestChanges(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, root string){
		"a byte": func(t *testing.T, root string) { write(t, filepath.Join(root, "hook/src/a.c"), "b") },
		"a script": func(t *testing.T, root string) {
			write(t, filepath.Join(root, "hack/hook.sh"), read(t, root, "hack/hook.sh")+" #")
		},
		"a file": func(t *testing.T, root string) { write(t, filepath.Join(root, "hook/include/a.h"), "") },
		"a name": func(t *testing.T, root string) {
			if err := os.Rename(filepath.Join(root, "hook/src/b.c"), filepath.Join(root, "hook/src/c.c")); err != nil {
				t.Fatal(err)
			}
		},
		"flags":       func(t *testing.T, _ string) { t.Setenv("CFLAGS", "-fsanitize=thread") },
		"compiler":    func(t *testing.T, _ string) { t.Setenv("CC", "no-such-compiler") },
		"its version": func(t *testing.T, _ string) { write(t, os.Getenv("CC"), "#!/bin/sh\necho 2\n") },
		"version of gcc": func(t *testing.T, root string) {
			compiler := filepath.Join(t.TempDir(), "gcc")
			write(t, compiler, "#!/bin/sh\necho 99\n")
			t.Setenv("PATH", filepath.Dir(compiler)+":"+os.Getenv("PATH"))
		},
		"same: a test":           func(t *testing.T, root string) { write(t, filepath.Join(root, "hook/hook_test.go"), "b") },
		"same: a document":       func(t *testing.T, root string) { write(t, filepath.Join(root, "hook/README.md"), "b") },
		"same: a file elsewhere": func(t *testing.T, root string) { write(t, filepath.Join(root, "other"), "b") },
		"same: nothing":          func(t *testing.T, root string) {},
	} {
		t.Run(name, func(t *testing.T) {
			root, log := checkout(t)
			built(t, root, Driver)
			change(t, root)
			folder := built(t, root, Driver)
			want := 2
			if strings.HasPrefix(name, "same") {
				want = 1
			}
			if builds := strings.Count(read(t, log), "\n"); builds != want {
				t.Errorf("%d builds, want %d", builds, want)
			}
			if name == "a byte" && read(t, folder, "out") != "b" {
				t.Errorf("made of what was there before: %q", read(t, folder, "out"))
			}
		})
	}
}

// TestOnce: of several concurrent callers only one builds, and each gets files of its own.
func TestOnce(t *testing.T) {
	root, log := checkout(t)
	var callers sync.WaitGroup
	for range 8 {
		folder := t.TempDir()
		callers.Go(func() {
			if err := Build(root, folder, Hook, HookTests); err != nil {
				t.Error(err)
			}
			for _, name := range []string{"out", "test"} {
				if content, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(content) != "a" {
					t.Errorf("%s has %q, %v", name, content, err)
				}
				if err := os.WriteFile(filepath.Join(folder, name), []byte("changed"), 0); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if builds := strings.Count(read(t, log), "\n"); builds != len([]Part{Driver, Hook, HookTests}) {
		t.Errorf("%d builds:\n%s", builds, read(t, log))
	}
}

// TestSourcesOnly: the scripts do not see files that are not hashed.
func TestSourcesOnly(t *testing.T) {
	root, _ := checkout(t)
	write(t, filepath.Join(root, "hook/fake/build.sh"), "cat other")
	if err := Build(root, t.TempDir(), Driver); err == nil || !strings.Contains(err.Error(), "other: No such file") {
		t.Error(err)
	}
}

// TestFailure: what a failed or killed build leaves behind is not used.
func TestFailure(t *testing.T) {
	root, log := checkout(t)
	good := read(t, root, "hook/fake/build.sh")
	write(t, filepath.Join(root, "hook/fake/build.sh"), good+"; echo cannot >&2; exit 1")
	for range 2 {
		if err := Build(root, t.TempDir(), Driver); err == nil || !strings.Contains(err.Error(), "build the driver: exit status 1\ncannot") {
			t.Error(err)
		}
	}
	if builds := strings.Count(read(t, log), "\n"); builds != 2 {
		t.Errorf("%d builds that fail, want 2", builds)
	}
	write(t, filepath.Join(root, "hook/fake/build.sh"), good)
	work := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "gshare/native/driver/new")
	write(t, filepath.Join(work, "out/half"), "")
	folder := built(t, root, Driver)
	if _, err := os.Stat(filepath.Join(folder, "half")); read(t, folder, "out") != "a" || err == nil {
		t.Error("the build has files of one that was killed")
	}
	if _, err := os.Stat(work); err == nil {
		t.Error("the folder of the build has stayed")
	}
}

// TestNoCache: without a cache, each call compiles in its own folder.
func TestNoCache(t *testing.T) {
	for name, prepare := range map[string]func(t *testing.T){
		"none":         func(t *testing.T) { t.Setenv("XDG_CACHE_HOME", ""); t.Setenv("HOME", "") },
		"not a folder": func(t *testing.T) { write(t, os.Getenv("XDG_CACHE_HOME"), "") },
	} {
		t.Run(name, func(t *testing.T) {
			root, log := checkout(t)
			prepare(t)
			for range 2 {
				if folder := built(t, root, HookTests); read(t, folder, "out") != "a" || read(t, folder, "test") != "a" {
					t.Error("other files")
				}
			}
			if builds := strings.Count(read(t, log), "\n"); builds != 4 {
				t.Errorf("%d builds, want 4", builds)
			}
		})
	}
}

// TestOld: the most recently used builds stay in the cache.
func TestOld(t *testing.T) {
	root, log := checkout(t)
	source := func(n int) { write(t, filepath.Join(root, "hook/src/a.c"), strings.Repeat("a", n)) }
	files, _ := sources(root)
	first := filepath.Join(os.Getenv("XDG_CACHE_HOME"), "gshare/native/driver", key(files))
	for n := range kept + 1 {
		source(n + 1)
		built(t, root, Driver)
		if n == 0 { // the least recently used
			if err := os.Chtimes(first, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		if n == kept-1 { // used again, and so the most recently used
			source(1)
			built(t, root, Driver)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(first))
	if err != nil || len(entries) != kept+1 { // kept builds, and the lock
		t.Errorf("%v, %v", entries, err)
	}
	if _, err := os.Stat(first); err != nil {
		t.Error("what was used is gone")
	}
	if builds := strings.Count(read(t, log), "\n"); builds != kept+1 {
		t.Errorf("%d builds, want %d", builds, kept+1)
	}
}

// TestKilled: while the script of a killed test process still runs, nobody else builds.
func TestKilled(t *testing.T) {
	const variable = "NATIVE_TEST_ROOT"
	if root := os.Getenv(variable); root != "" { // in the process that will be killed
		t.Fatal(Build(root, t.TempDir(), Driver))
	}
	root, _ := checkout(t)
	begun, end := filepath.Join(t.TempDir(), "begun"), filepath.Join(t.TempDir(), "end")
	for _, pipe := range []string{begun, end} {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	good := read(t, root, "hook/fake/build.sh")
	write(t, filepath.Join(root, "hook/fake/build.sh"), "echo >"+begun+"; read line <"+end)
	child := exec.Command(os.Args[0], "-test.run=^TestKilled$")
	child.Env = append(os.Environ(), variable+"="+root)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	read(t, begun)
	_ = child.Process.Kill()
	_ = child.Wait()
	lock, err := os.Open(filepath.Join(os.Getenv("XDG_CACHE_HOME"), "gshare/native/driver/lock"))
	if err != nil {
		t.Fatal(err)
	}
	err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	lock.Close()
	if err != syscall.EWOULDBLOCK {
		t.Errorf("lock while the script runs: %v", err)
	}
	write(t, end, "\n")
	write(t, filepath.Join(root, "hook/fake/build.sh"), good)
	if content := read(t, built(t, root, Driver), "out"); content != "a" {
		t.Errorf("built %q", content)
	}
}
