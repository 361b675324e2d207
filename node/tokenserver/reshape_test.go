package tokenserver_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

func idleOnly(s *tokenserver.Spec) { s.IdleOnly = true }

// allTime is a share of 60 % of the SMs for all of the time.
var allTime = share.Share{SMRequest: 600, SMLimit: 600, QuotaRequest: 1000, QuotaLimit: 1000, Memory: gib}

// policy returns what the policy file of a container guarantees while no server runs.
func (r *fixture) policy(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, name, tokenserver.PolicyName))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReshape: a running container gives its time up, also on its page and in its policy file, its neighbour takes it, and it comes back only
// when that has left.
func TestReshape(t *testing.T) {
	r := newFixture(t, tempDir(t))
	served := r.add(t, "a", allTime)
	a := r.dial(t, "a")
	page := a.VGPUs[0].Server
	for _, idle := range []bool{true, false, true, true} {
		if err := served.Reshape(idle); err != nil {
			t.Fatal(err)
		}
		want, text := uint32(1000), "quota 1000 "
		if idle {
			want, text = 0, "quota 0 "
		}
		if got, policy := page.Guaranteed.Load(), r.policy(t, "a"); got != want || !strings.Contains(policy, text) {
			t.Errorf("idle time only: %t; guaranteed %d, policy file %q", idle, got, policy)
		}
		if page.MemoryLimit.Load() != uint64(gib) || served.Status().VGPUs[0].IdleOnly != idle {
			t.Errorf("memory limit %d, status %+v", page.MemoryLimit.Load(), served.Status().VGPUs[0])
		}
	}
	if later := r.dial(t, "a"); later.VGPUs[0].Server.Guaranteed.Load() != 0 {
		t.Error("a process that begins later is guaranteed time")
	}
	neighbour := r.add(t, "b", allTime)
	if err := served.Reshape(false); !errors.Is(err, token.ErrDoesNotFit) || !served.Status().VGPUs[0].IdleOnly {
		t.Errorf("beside a neighbour with all of the time: %v", err)
	}
	if err := neighbour.Close(); err != nil {
		t.Fatal(err)
	}
	if err := served.Reshape(false); err != nil {
		t.Error(err)
	}
}

// TestReshapeWithFullDisk: a container keeps what it had if its policy file cannot be written, in the server and on its page.
func TestReshapeWithFullDisk(t *testing.T) {
	for name, test := range map[string]struct{ before, wanted bool }{
		"reduction": {false, true}, "raise": {true, false}, "of nothing": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, tempDir(t))
			served := r.add(t, "a", allTime, func(s *tokenserver.Spec) { s.IdleOnly = test.before })
			page := r.dial(t, "a").VGPUs[0].Server
			guaranteed, policy := page.Guaranteed.Load(), r.policy(t, "a")
			blocker := filepath.Join(r.dir, "a", tokenserver.PolicyName+".next")
			if err := os.Mkdir(blocker, 0o755); err != nil { // writes fail, as on a full disk
				t.Fatal(err)
			}
			if err := served.Reshape(test.wanted); (err == nil) != (test.wanted == test.before) { // an equal file is not written
				t.Error(err)
			}
			if now := served.Status().VGPUs[0].IdleOnly; now != test.before || page.Guaranteed.Load() != guaranteed || r.policy(t, "a") != policy {
				t.Errorf("idle time only: %t; guaranteed %d, policy file %q", now, page.Guaranteed.Load(), r.policy(t, "a"))
			}
			if err := os.Remove(blocker); err != nil {
				t.Fatal(err)
			}
			if err := served.Reshape(test.wanted); err != nil || served.Status().VGPUs[0].IdleOnly != test.wanted {
				t.Errorf("afterwards: %v, %+v", err, served.Status().VGPUs[0])
			}
		})
	}
}

// TestReshapeGivesWay: a process that gets only idle time runs when alone, waits while its neighbour works, and runs again afterwards.
func TestReshapeGivesWay(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.add(t, "a", allTime, idleOnly)
	r.add(t, "b", allTime)
	a, b := r.dial(t, "a"), r.dial(t, "b")
	if !a.WaitRun(0, timeout) {
		t.Fatal("it does not run when alone")
	}
	b.VGPUs[0].Client.Open.Store(uint64(time.Millisecond)) // from here on b always has work
	if !b.WaitRun(0, timeout) {
		t.Fatal("the neighbour does not run")
	}
	if state(a) == tokenwire.Run {
		t.Error("both run")
	}
	a.VGPUs[0].Client.Waiting.Add(1)
	b.VGPUs[0].Client.Open.Store(0)
	if !a.WaitRun(0, timeout) {
		t.Error("it does not run after its neighbour")
	}
}

// TestReshapeBlocks: an elastic container without a guarantee has no blocks while its neighbour launches, all of its limit otherwise, and
// its limit is never below its own request.
func TestReshapeBlocks(t *testing.T) {
	r, clock := newElasticFixture(t)
	most := quarter
	most.SMLimit = 1000
	served, _ := r.add(t, "a", most, elastic, protected), r.add(t, "b", most, elastic)
	a, b := r.dial(t, "a"), r.dial(t, "b")
	work := func(c *tokenclient.Client) {
		c.VGPUs[0].Container.Taken.Add(100)
		c.VGPUs[0].Client.Busy.Add(uint64(5 * time.Millisecond))
	}
	for range 100 {
		work(a)
		clock.tick()
	}
	if err := served.Reshape(true); err != nil {
		t.Fatal(err)
	}
	if err := served.Resize(200); err == nil {
		t.Error("a limit below the request")
	}
	for n := range 50 {
		work(b)
		if clock.tick(); n > 2 && credit(a) > 0 {
			t.Fatalf("it has %d blocks beside a neighbour that launches", credit(a))
		}
	}
	for range 20 {
		clock.tick()
	}
	if credit(a) <= 0 {
		t.Error("it has no blocks while its neighbour is idle")
	}
	if err := served.Reshape(false); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		work(a)
		work(b)
		clock.tick()
	}
	if got := a.VGPUs[0].Server.Guaranteed.Load(); got != 250 || credit(a) <= 0 {
		t.Errorf("guaranteed %d, %d blocks, after its return", got, credit(a))
	}
}
