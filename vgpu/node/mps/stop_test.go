package mps

import "testing"

// TestStop: what outlives the keeper ends, and nothing is left to do a second time.
func TestStop(t *testing.T) {
	r := newRig(t)
	if err := r.Stop(t.Context()); err != nil {
		t.Errorf("without a daemon: %v", err)
	}
	r.Hold([]string{slice})
	r.opened()
	r.daemon()
	r.Close()
	for range 2 {
		if err := r.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	r.eventually("no daemon", func() bool {
		daemons, servers := control{r.Daemons, slice}.processes()
		return len(daemons)+len(servers) == 0
	})
}
