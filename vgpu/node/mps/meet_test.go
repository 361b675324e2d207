package mps

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/node/process"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// byHand gives the daemon of a keeper that does not look by itself.
func (r *rig) byHand() *daemon {
	r.t.Helper()
	r.Close()
	r.Keeper = r.keeper(r.Dir)
	r.Keeper.closed = true
	r.Hold([]Member{small})
	return r.kept[slice]
}

// looks takes one look, in which something may happen before it is noted.
func (d *daemon) looks(between func()) supervisor.Look {
	d.meet()
	l, o := d.judge()
	between()
	d.note(l, o)
	return l
}

func nothing() {}

// kills ends the daemon and waits until it has ended.
func (r *rig) kills(pid int) {
	r.t.Helper()
	born, err := process.Born(pid)
	if err != nil {
		r.t.Fatal(err)
	}
	r.signal(pid, syscall.SIGKILL)
	r.eventually("its end", func() bool { return !lives(pid, born) })
}

// TestPipesOfAll: where the daemon has namespaces, nobody is given the directory that shows those of all, whenever it dies and
// whoever answers next.
func TestPipesOfAll(t *testing.T) {
	r := newRig(t, namespaces)
	own := r.opensFor(small)
	if own != filepath.Join(r.Pipe(slice), serverName, small.Name) {
		t.Fatal(own)
	}
	d := r.byHand()
	closed := func(when string) {
		t.Helper()
		if pipe, err := r.Open(small); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: open, by %s", when, pipe)
		}
	}
	d.looks(nothing)
	if pipe, err := r.Open(small); pipe != own || err != nil {
		t.Errorf("pipes %s, %v", pipe, err)
	}
	d.looks(func() { r.kills(r.daemon()) })
	closed("it has died after its answer")
	d.meet()
	closed("nobody is there")
	next := d.control
	next.namespaces = true
	if err := errors.Join(next.kill(), next.start(t.Context())); err != nil {
		t.Fatal(err)
	}
	if l, o := d.judge(); o.Closed == "" {
		t.Errorf("open with an answer of nobody knows whom: %+v", l)
	}
	d.looks(nothing)
	if pipe, err := r.Open(small); pipe != own || err != nil {
		t.Errorf("pipes of the next daemon: %s, %v", pipe, err)
	}
}

// TestUnmet: an answer of a daemon that came after the keeper had looked for one opens nothing.
func TestUnmet(t *testing.T) {
	r := newRig(t, "")
	r.opensFor(small)
	d := r.byHand()
	r.kills(r.daemon())
	d.meet()
	if err := errors.Join(d.kill(), d.start(t.Context())); err != nil {
		t.Fatal(err)
	}
	if l, o := d.judge(); l.Daemon != supervisor.Answers || o.Closed != unmet {
		t.Errorf("%+v, closed %q", l, o.Closed)
	}
}
