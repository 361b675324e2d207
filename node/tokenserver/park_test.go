package tokenserver_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestPark: what the processes do not hold is taken back, for those that run and for later ones, and given back; with none, or with all of it in
// use, nothing changes.
func TestPark(t *testing.T) {
	r := newFixture(t, tempDir(t))
	served := r.add(t, "a", allTime)
	a := r.dial(t, "a")
	sum := &a.VGPUs[0].Container.Memory
	check := func(what string, parked bool, used, kept share.Bytes) {
		t.Helper()
		status := served.Status().VGPUs[0]
		if status.Parked != parked || status.Used != used || status.Kept != kept {
			t.Errorf("%s: parked %t, used %d, kept %d; want %t, %d, %d", what, status.Parked, status.Used, status.Kept, parked, used, kept)
		}
		if free := uint64(gib) - sum.Load(); free != uint64(kept-used) {
			t.Errorf("%s: processes can allocate %d bytes, want %d", what, free, kept-used)
		}
	}
	for _, all := range []uint64{math.MaxInt64, uint64(gib)} {
		sum.Store(all)
		if kept, err := served.Park(); !errors.Is(err, tokenserver.ErrNothingFree) {
			t.Errorf("all memory is in use: kept %d, %v", kept, err)
		}
	}
	check("all in use", false, gib, gib)
	sum.Store(uint64(3*share.MiB + 1))
	for range 2 { // the second time it is parked already
		if kept, err := served.Park(); err != nil || kept != 4*share.MiB {
			t.Fatalf("kept %d, %v", kept, err)
		}
	}
	check("parked", true, 3*share.MiB+1, 4*share.MiB)
	if policy := r.policy(t, "a"); !strings.Contains(policy, " memory 4194304 ") {
		t.Errorf("policy file %q", policy)
	}
	if err := served.Reshape(true); err != nil || !strings.Contains(r.policy(t, "a"), " memory 4194304 quota 0 ") {
		t.Errorf("without its time: %v, policy file %q", err, r.policy(t, "a"))
	}
	if err := served.Unpark(); err != nil || !strings.Contains(r.policy(t, "a"), " memory 1073741824 quota 0 ") {
		t.Errorf("unparked: %v, policy file %q", err, r.policy(t, "a"))
	}
	check("unparked", false, 3*share.MiB+1, gib)
}

// TestParkedProcessEnds: what a parked container keeps back does not come free with its last process, whatever that has written on its page.
func TestParkedProcessEnds(t *testing.T) {
	r := newFixture(t, tempDir(t))
	served := r.add(t, "a", allTime)
	for _, claimed := range []share.Bytes{share.MiB, 100 * gib} {
		a := r.dial(t, "a")
		a.VGPUs[0].Container.Memory.Add(uint64(share.MiB))
		a.VGPUs[0].Client.Memory.Store(uint64(claimed))
		if _, err := served.Park(); err != nil {
			t.Fatal(err)
		}
		a.Close()
		eventually(t, "the process has ended", func() bool { return len(served.Status().VGPUs[0].Processes) == 0 && served.Status().VGPUs[0].Used == 0 })
		if status := served.Status().VGPUs[0]; !status.Parked || status.Kept > 2*share.MiB {
			t.Errorf("after its last process: %+v", status)
		}
		later := r.dial(t, "a")
		if sum := share.Bytes(later.VGPUs[0].Container.Memory.Load()); sum < gib-2*share.MiB {
			t.Errorf("a later process finds %d bytes taken", sum)
		}
		later.Close()
		if err := served.Unpark(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the later process has ended", func() bool { return !served.InUse() })
	}
}

// TestStartsParked: a server that starts with a parked container has taken its memory back before a process can connect.
func TestStartsParked(t *testing.T) {
	r := newFixture(t, tempDir(t))
	served := r.add(t, "a", allTime, idleOnly, func(s *tokenserver.Spec) { s.Parked, s.Kept = true, 5*share.MiB })
	if policy := r.policy(t, "a"); !strings.Contains(policy, " memory 5242880 quota 0 ") {
		t.Errorf("policy file %q", policy)
	}
	a := r.dial(t, "a")
	if sum := a.VGPUs[0].Container.Memory.Load(); sum != uint64(gib-5*share.MiB) {
		t.Errorf("%d bytes are taken", sum)
	}
	if kept, err := served.Park(); err != nil || kept != 5*share.MiB {
		t.Errorf("parked again: kept %d, %v", kept, err)
	}
}
