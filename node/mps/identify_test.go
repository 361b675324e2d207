package mps

import (
	"context"
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// manualDaemon restarts the manager without loops and returns its daemon, for tests that call iterate.
func (r *rig) manualDaemon() *daemon {
	r.t.Helper()
	r.Close()
	r.Manager = r.newManager(Daemons{Dir: r.Dir})
	r.Manager.closed = true
	r.SetMembers([]Member{small})
	return r.Manager.daemons[slice]
}

// iterate runs an iteration of the loop without its action, and calls beforePublish in it.
func (d *daemon) iterate(beforePublish func()) supervisor.Observation {
	d.identifyProcess()
	observation, decision := d.decide()
	if beforePublish != nil {
		beforePublish()
	}
	d.publish(observation, decision)
	return observation
}

// kill kills the daemon and waits until it has ended.
func (r *rig) kill(pid int) {
	r.t.Helper()
	startTime, err := process.StartTime(pid)
	if err != nil {
		r.t.Fatal(err)
	}
	r.signal(pid, syscall.SIGKILL)
	r.waitFor("the daemon to end", func() bool { return !isAlive(pid, startTime) })
}

// TestNoSlicePipeDir: where the daemon has namespaces, Open never returns the slice's own pipe directory, whenever the daemon ends and
// whichever daemon answers next.
func TestNoSlicePipeDir(t *testing.T) {
	r := newRig(t, driver615)
	own := r.openFor(small)
	if own != filepath.Join(r.PipeDir(slice), serverName, small.Name) {
		t.Fatal(own)
	}
	d := r.manualDaemon()
	checkClosed := func(when string) {
		t.Helper()
		if e, err := r.Open(small); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: got pipe directory %s, want ErrClosed", when, e.PipeDir)
		}
	}
	d.iterate(nil)
	if e, err := r.Open(small); e.PipeDir != own || err != nil {
		t.Errorf("got pipe directory %s, %v", e.PipeDir, err)
	}
	d.iterate(func() { r.kill(r.daemon()) })
	checkClosed("the daemon ended after its answer")
	d.identifyProcess()
	checkClosed("no daemon runs")
	next := d.control
	next.isVersion3, d.CommandTimeout = true, time.Second // the daemon is asked in the words of the other version
	if err := errors.Join(next.killAll(), startOnly(next)); err != nil {
		t.Fatal(err)
	}
	if o, decision := d.decide(); decision.Closed == "" {
		t.Errorf("open by the answer of an unidentified daemon: %+v", o)
	}
	d.iterate(nil)
	if e, err := r.Open(small); e.PipeDir != own || err != nil {
		t.Errorf("next daemon: got pipe directory %s, %v", e.PipeDir, err)
	}
}

// TestUnidentified: the answer of a daemon that started after the manager had searched for one opens nothing.
func TestUnidentified(t *testing.T) {
	r := newRig(t, "")
	r.openFor(small)
	d := r.manualDaemon()
	r.kill(r.daemon())
	d.identifyProcess()
	if err := errors.Join(d.control.killAll(), startOnly(d.control)); err != nil {
		t.Fatal(err)
	}
	if o, decision := d.decide(); o.Daemon != supervisor.Answers || decision.Closed != reasonUnidentified {
		t.Errorf("got %+v, closed %q", o, decision.Closed)
	}
}

// startOnly starts a daemon as control.start does.
func startOnly(c control) error { return c.start(context.Background()) }
