package mps

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// pipes are the directories that two tenants have mounted, below a slice's.
func pipes(t *testing.T) (c control, first, last string) {
	t.Helper()
	c = control{Daemons: Daemons{Dir: t.TempDir()}, slice: slice}
	first, last = filepath.Join(c.Pipe(slice), serverName, "a"), filepath.Join(c.Pipe(slice), serverName, "z")
	if err := errors.Join(os.MkdirAll(first, 0o755), os.MkdirAll(last, 0o755)); err != nil {
		t.Fatal(err)
	}
	return c, first, last
}

// TestClear: whatever a tenant makes, in its own directory or in the slice's, goes, and nothing outside of it. What is mounted is the same as before.
func TestClear(t *testing.T) {
	c, first, last := pipes(t)
	outside := t.TempDir()
	before, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	made := []string{
		filepath.Join(c.Pipe(slice), "control"), filepath.Join(first, "control", "deep", "file"), filepath.Join(first, "file"),
		filepath.Join(last, "control"), filepath.Join(c.Pipe(slice), "server", "file"),
	}
	for _, file := range append(made, filepath.Join(outside, "file")) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	links := []string{filepath.Join(first, "link"), filepath.Join(c.Pipe(slice), serverName, "link"), filepath.Join(c.Pipe(slice), "link")}
	for _, link := range links {
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.clear(); err != nil {
		t.Fatal(err)
	}
	made = append(made, filepath.Join(first, "control"), filepath.Join(c.Pipe(slice), "server"))
	for _, file := range append(made, links...) {
		if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left (%v)", file, err)
		}
	}
	if _, err := os.Stat(filepath.Join(outside, "file")); err != nil {
		t.Error(err)
	}
	if after, err := os.Stat(first); err != nil || !os.SameFile(before, after) {
		t.Errorf("the mounted directory is another one (%v)", err)
	}
}

// TestClearMeanwhile: a tenant that makes and removes files and directories all the time keeps no neighbour's pipe, and nobody from the next daemon.
func TestClearMeanwhile(t *testing.T) {
	c, first, last := pipes(t)
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for file := filepath.Join(first, "file"); ; {
			select {
			case <-stop:
				return
			default:
				_ = os.WriteFile(file, nil, 0o644)
				_ = os.Remove(file)
				_ = os.MkdirAll(filepath.Join(first, "dir", "dir"), 0o755)
				_ = os.WriteFile(filepath.Join(first, "dir", "file"), nil, 0o644)
			}
		}
	}()
	defer func() { close(stop); <-ended }()
	for range 200 {
		pipe := filepath.Join(last, "control")
		if err := os.WriteFile(pipe, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := c.clear(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(pipe); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("the neighbour's pipe is left (%v)", err)
		}
	}
}

// TestDirectoryForPipe: a tenant that puts a directory where its pipe was keeps neither itself nor its neighbour from the next daemon.
func TestDirectoryForPipe(t *testing.T) {
	r := newRig(t, namespaces)
	pipe := r.opensFor(small)
	r.opensFor(large)
	r.Hold([]Member{small, large})
	control := filepath.Join(pipe, "control")
	if err := errors.Join(os.Remove(control), os.MkdirAll(filepath.Join(control, "x"), 0o755)); err != nil {
		t.Fatal(err)
	}
	r.another(r.daemon())
	r.opensFor(large)
	r.opensFor(small)
}
