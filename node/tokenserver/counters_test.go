package tokenserver_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// TestCounters provokes one event of each kind except a HELLO timeout.
func TestCounters(t *testing.T) {
	r := newFixture(t, tempDir(t), func(c *tokenserver.Config) {
		c.Clock, c.MaxConnections = stoppedClock{}, 1
	})
	container := r.add(t, "a", half)
	r.add(t, "closed", half, func(s *tokenserver.Spec) {
		s.Admit = func(process.Process) error { return errors.New("nobody") }
	})
	alone := func() { // the process counts until its page is unmapped, which is after its connection has ended
		t.Helper()
		eventually(t, "the last process does not count any more", func() bool { return !container.InUse() })
	}
	send := func(name string, frames ...[]byte) {
		t.Helper()
		conn := connect(t, r, name)
		for _, frame := range frames {
			if _, err := conn.Write(frame); err != nil {
				t.Fatal(err)
			}
		}
		answer(t, conn)
		alone()
	}
	send("closed")
	send("a", []byte("garbage"))
	send("a", encode(t, &tokenwire.Bye{}))
	first := r.dial(t, "a")
	answer(t, connect(t, r, "a")) // one too many
	first.Close()
	alone()
	again, err := tokenclient.Dial(filepath.Join(r.dir, "a"), first.Welcome.Session)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for again.Send(&tokenwire.Need{}) == nil {
		continue // until it is cut off
	}
	eventually(t, "the connection has ended", func() bool { return container.Connections() == 0 })
	want := tokenserver.Counters{Sessions: 2, Reconnects: 1, Refused: map[tokenserver.Reason]uint64{
		tokenserver.OtherContainer: 1, tokenserver.Malformed: 1, tokenserver.Unexpected: 1, tokenserver.TooMany: 1,
		tokenserver.TooFast: 1, tokenserver.Silent: 0, tokenserver.Closing: 0, tokenserver.Outdated: 0, tokenserver.Unreceived: 0,
	}}
	if diff := cmp.Diff(want, r.Counters()); diff != "" {
		t.Error(diff)
	}
}

// TestUseIsCounted checks that the totals of a vGPU include the work of its process.
func TestUseIsCounted(t *testing.T) {
	r := newFixture(t, tempDir(t))
	container := r.add(t, "a", half)
	start(t, "work", filepath.Join(r.dir, "a"))
	eventually(t, "all totals have grown", func() bool {
		v := container.Status().VGPUs[0]
		return v.Total > 0 && v.Tokens > 1 && v.Waits.Count > 1 && v.Waits.Sum > 0 && v.LeasedSessions == 0
	})
	if v := container.Status().VGPUs[0]; v.Total > 10*time.Minute {
		t.Errorf("busy for %v", v.Total)
	}
}

// TestLeasedSession checks that the session of an earlier server is counted as leased.
func TestLeasedSession(t *testing.T) {
	dir := tempDir(t)
	if err := os.MkdirAll(filepath.Join(dir, "a", "sessions"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "sessions", "1f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	container := newFixture(t, dir, func(c *tokenserver.Config) { c.Clock = stoppedClock{} }).add(t, "a", half)
	if n := container.Status().VGPUs[0].LeasedSessions; n != 1 {
		t.Errorf("%d sessions are awaited", n)
	}
}
