package mps

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestOpenWhileStopping: a daemon is not stopped under a member that Open has accepted, also where the last member has just left and the
// daemon was about to end.
func TestOpenWhileStopping(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		r.share()
		accepted := 0
		for range 100 {
			daemon := r.daemon()
			r.SetMembers(nil)
			time.Sleep(rand.N(15 * time.Millisecond)) // to any moment of an iteration
			open := r.isOpen()
			r.share()
			if !open {
				continue
			}
			if accepted++; r.daemon() != daemon {
				t.Fatalf("the daemon was stopped after Open had accepted %d times", accepted)
			}
		}
		if accepted == 0 {
			t.Error("Open never came in time")
		}
	})
}
