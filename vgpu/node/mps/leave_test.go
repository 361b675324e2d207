package mps

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestComesAsLastLeaves: who may come to a daemon finds it there, also where the last member has just left and it was about to end.
func TestComesAsLastLeaves(t *testing.T) {
	versions(t, func(t *testing.T, r *rig) {
		r.shared()
		came := 0
		for range 100 {
			daemon := r.daemon()
			r.Hold(nil)
			time.Sleep(rand.N(15 * time.Millisecond)) // some moment of a look
			mayCome := r.open() == nil
			r.shared()
			if !mayCome {
				continue
			}
			if came++; r.daemon() != daemon {
				t.Fatalf("the daemon was ended under who came %d. to it", came)
			}
		}
		if came == 0 {
			t.Error("nobody came in time")
		}
	})
}
