package mps

import "testing"

// TestStop: what outlives the keeper ends, and nothing is left to do a second time.
func TestStop(t *testing.T) {
	versions(t, func(t *testing.T, r *rig) {
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("without a daemon: %v", err)
		}
		r.shared()
		r.daemon()
		r.Close()
		for range 2 {
			if err := r.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		r.eventually("no daemon", func() bool {
			daemons, servers := r.control(slice).processes()
			return len(daemons)+len(servers) == 0
		})
	})
}
