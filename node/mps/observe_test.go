package mps

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// TestPipeRemoved: a daemon that runs, but whose pipe has been removed, counts as silent at once.
func TestPipeRemoved(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		r.share()
		first := r.daemon()
		d := r.manualDaemon()
		d.CommandTimeout = 250 * time.Millisecond // it gets no answer
		r.signal(first, syscall.SIGSTOP)          // it would end
		t.Cleanup(func() { _ = syscall.Kill(first, syscall.SIGKILL) })
		if err := os.Remove(filepath.Join(r.PipeDir(slice), "control")); err != nil {
			t.Fatal(err)
		}
		if o := d.iterate(nil); o.Daemon != supervisor.Silent || d.closed != "the daemon does not answer" {
			t.Errorf("got %+v, closed %q", o, d.closed)
		}
	})
}

// TestPipeReplaced: a tenant that replaces the daemon's pipe by a file does not close the slice for good.
func TestPipeReplaced(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		r.share()
		first, control := r.daemon(), filepath.Join(r.PipeDir(slice), "control")
		if err := errors.Join(os.WriteFile(control+".next", nil, 0o644), os.Rename(control+".next", control)); err != nil {
			t.Fatal(err)
		}
		r.waitForReplacement(first)
	})
}

// TestClosedWhileWaiting: a manager that is closed while it asks a daemon does not kill it as one that is silent.
func TestClosedWhileWaiting(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		r.share()
		first := r.daemon()
		d := r.manualDaemon()
		d.supervisor = supervisor.New(supervisor.Config{}) // without patience
		d.clients = map[int]uint64{}                       // as of its last answer: so none is in the way
		d.manager.stop()
		d.loop()
		if got := r.daemonPIDs(); !slices.Equal(got, []int{first}) {
			t.Errorf("daemons %v, want %d", got, first)
		}
	})
}

// TestPublishedOnce: OnChange is called once for each change, also while a namespace is refused again and again.
func TestPublishedOnce(t *testing.T) {
	r := newRig(t, driver615)
	r.openFor(small)
	d := r.manualDaemon()
	if err := os.WriteFile(filepath.Join(r.logDir(slice), "refuse"), []byte("namespace set"), 0o644); err != nil {
		t.Fatal(err)
	}
	d.iterate(nil)
	before := r.changes.Load()
	d.iterate(nil)
	if after := r.changes.Load(); d.namespaces[small.Name].err == nil || after != before {
		t.Errorf("namespaces %+v; OnChange was called %d times more, want 0", d.namespaces, after-before)
	}
}
