package mps

import "testing"

// TestStop: Stop ends what outlives the manager, and can be repeated.
func TestStop(t *testing.T) {
	forVersions(t, func(t *testing.T, r *rig) {
		if err := r.Stop(t.Context()); err != nil {
			t.Errorf("without a daemon: %v", err)
		}
		r.share()
		r.daemon()
		r.Close()
		for range 2 {
			if err := r.Stop(t.Context()); err != nil {
				t.Error(err)
			}
		}
		r.waitFor("all processes to end", func() bool { return len(r.daemonPIDs())+len(r.servers()) == 0 })
	})
}
