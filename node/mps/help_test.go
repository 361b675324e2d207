package mps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// breakHelp restarts the manager with a control program that is killed when it is asked for its help, while the returned file exists.
func (r *rig) breakHelp() (file string) {
	r.t.Helper()
	dir := r.t.TempDir()
	file, wrapper := filepath.Join(dir, "broken"), filepath.Join(dir, controlProgram)
	script := fmt.Sprintf("#!/bin/sh\n[ -e %s ] && [ \"$3\" = -h ] && kill -9 $$\nexec %s \"$@\"\n", file, filepath.Join(r.folder, r.driver, controlProgram))
	syscall.ForkLock.RLock() // a child that is forked while a program is written keeps it from being executed
	err := os.WriteFile(wrapper, []byte(script), 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		r.t.Fatal(err)
	}
	r.Close()
	c := r.Config
	c.Program = wrapper
	r.Manager = New(c)
	r.t.Cleanup(r.Manager.Close)
	return file
}

// TestUnknownFeatures: a program whose help cannot be read is not treated as an old one. The members of a daemon with namespaces get
// another one with namespaces, and without members no daemon is started.
func TestUnknownFeatures(t *testing.T) {
	r := newRig(t, driver615)
	broken := r.breakHelp()
	pipeDir := r.openFor(small)
	r.SetMembers([]Member{small})
	if err := os.WriteFile(broken, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r.replaceDaemon()
	if again := r.openFor(small); again != pipeDir || !r.HasNamespace(slice, small.Name) {
		t.Errorf("got pipe directory %s, want %s", again, pipeDir)
	}
	r.SetMembers([]Member{small}) // it is not pending any more
	r.SetMembers(nil)
	r.waitForNoDaemon()
	r.waitFor("the reason", func() bool {
		_, err := r.Open(small)
		return errors.Is(err, ErrClosed) && strings.Contains(err.Error(), "the help of")
	})
	if err := os.Remove(broken); err != nil {
		t.Fatal(err)
	}
	if again := r.openFor(small); again != pipeDir {
		t.Errorf("got pipe directory %s, want %s", again, pipeDir)
	}
}
