package mps

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// TestNoWay: a daemon that lives, but whose pipe has gone, is one that does not answer, at once.
func TestNoWay(t *testing.T) {
	versions(t, func(t *testing.T, r *rig) {
		r.shared()
		first := r.daemon()
		d := r.byHand()
		r.signal(first, syscall.SIGSTOP) // it would end
		t.Cleanup(func() { _ = syscall.Kill(first, syscall.SIGKILL) })
		if err := os.Remove(filepath.Join(r.Pipe(slice), "control")); err != nil {
			t.Fatal(err)
		}
		if l := d.looks(nothing); l.Daemon != supervisor.Silent || d.why != "the daemon does not answer" {
			t.Errorf("%+v, closed %q", l, d.why)
		}
	})
}

// TestPipeReplaced: a tenant that puts something else where the daemon's pipe was does not close the slice for good.
func TestPipeReplaced(t *testing.T) {
	versions(t, func(t *testing.T, r *rig) {
		r.shared()
		first, control := r.daemon(), filepath.Join(r.Pipe(slice), "control")
		if err := errors.Join(os.WriteFile(control+".next", nil, 0o644), os.Rename(control+".next", control)); err != nil {
			t.Fatal(err)
		}
		r.replaced(first)
	})
}

// TestToldOnce: what stays as it is, is told once, also where a namespace is refused again and again.
func TestToldOnce(t *testing.T) {
	r := newRig(t, namespaces)
	r.opensFor(small)
	d := r.byHand()
	if err := os.WriteFile(filepath.Join(r.log(slice), "refuse"), []byte("namespace set"), 0o644); err != nil {
		t.Fatal(err)
	}
	d.looks(nothing)
	before := r.changes.Load()
	d.looks(nothing)
	if after := r.changes.Load(); d.rooms[small.Name].err == nil || after != before {
		t.Errorf("%+v, told %d times more", d.rooms, after-before)
	}
}
