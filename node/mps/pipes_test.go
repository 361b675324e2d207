package mps

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// mountedPipes returns a control, and the pipe directories below its slice's that two tenants have mounted.
func mountedPipes(t *testing.T) (c control, first, last string) {
	t.Helper()
	c = control{Daemons: Daemons{Dir: t.TempDir()}, slice: slice}
	first, last = filepath.Join(c.PipeDir(slice), serverName, "a"), filepath.Join(c.PipeDir(slice), serverName, "z")
	if err := errors.Join(os.MkdirAll(first, 0o755), os.MkdirAll(last, 0o755)); err != nil {
		t.Fatal(err)
	}
	return c, first, last
}

// TestRemovePipes: everything that a tenant creates, in its own directory or in the slice's, is removed, and nothing outside. The mounted
// directories stay.
func TestRemovePipes(t *testing.T) {
	c, first, last := mountedPipes(t)
	outside := t.TempDir()
	before, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	created := []string{
		filepath.Join(c.PipeDir(slice), "control"), filepath.Join(first, "control", "deep", "file"), filepath.Join(first, "file"),
		filepath.Join(last, "control"), filepath.Join(c.PipeDir(slice), "server", "file"),
	}
	for _, file := range append(created, filepath.Join(outside, "file")) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, nil, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	links := []string{filepath.Join(first, "link"), filepath.Join(c.PipeDir(slice), serverName, "link"), filepath.Join(c.PipeDir(slice), "link")}
	for _, link := range links {
		if err := os.Symlink(outside, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.removePipes(); err != nil {
		t.Fatal(err)
	}
	created = append(created, filepath.Join(first, "control"), filepath.Join(c.PipeDir(slice), "server"))
	for _, file := range append(created, links...) {
		if _, err := os.Lstat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s was not removed (%v)", file, err)
		}
	}
	if _, err := os.Stat(filepath.Join(outside, "file")); err != nil {
		t.Error(err)
	}
	if after, err := os.Stat(first); err != nil || !os.SameFile(before, after) {
		t.Errorf("the mounted directory was replaced (%v)", err)
	}
}

// TestRemovePipesMeanwhile: a tenant that creates and removes files and directories all the time does not preserve its neighbour's pipe,
// and causes no error.
func TestRemovePipesMeanwhile(t *testing.T) {
	c, first, last := mountedPipes(t)
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
		if err := c.removePipes(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(pipe); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("the neighbour's pipe was not removed (%v)", err)
		}
	}
}

// TestDirectoryForPipe: a tenant that replaces its pipe by a directory does not keep the next daemon from serving it or its neighbour.
func TestDirectoryForPipe(t *testing.T) {
	r := newRig(t, driver615)
	pipe := r.openFor(small)
	r.openFor(large)
	r.SetMembers([]Member{small, large})
	control := filepath.Join(pipe, "control")
	if err := errors.Join(os.Remove(control), os.MkdirAll(filepath.Join(control, "x"), 0o755)); err != nil {
		t.Fatal(err)
	}
	r.replaceDaemon()
	r.openFor(large)
	r.openFor(small)
}
