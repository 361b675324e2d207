package supervisor_test

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// TestRestartDelay: a daemon that was stopped because the slice was not shared starts again at once, however often; the delay of one that
// fails as often grows.
func TestRestartDelay(t *testing.T) {
	for name, stopped := range map[string]bool{"stopped": true, "failed": false} {
		t.Run(name, func(t *testing.T) {
			s, now, waited := supervisor.New(config), time.Time{}.Add(time.Hour), time.Duration(0)
			for range 6 {
				for waited = 0; s.Decide(now, supervisor.Observation{Wanted: true, Daemon: supervisor.Absent}).Action != supervisor.Start; waited += time.Second / 10 {
					now = now.Add(time.Second / 10)
				}
				s.Decide(now, supervisor.Observation{Wanted: true, Daemon: supervisor.Answers})
				if stopped && s.Decide(now, supervisor.Observation{Daemon: supervisor.Answers}).Action != supervisor.Stop {
					t.Fatal("the daemon is not stopped")
				}
			}
			if stopped != (waited == 0) {
				t.Errorf("it starts after %v", waited)
			}
		})
	}
}
