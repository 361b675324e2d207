package supervisor_test

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

// TestForgive: a daemon that is ended because nobody shares starts again at once, however often; one that ends by
// itself as often waits for ever longer.
func TestForgive(t *testing.T) {
	for _, orderly := range []bool{true, false} {
		s, now, waited := supervisor.New(config), time.Time{}.Add(time.Hour), time.Duration(0)
		for range 6 {
			for waited = 0; s.Look(now, supervisor.Look{Wanted: true, Daemon: supervisor.Absent}).Do != supervisor.Start; waited += time.Second / 10 {
				now = now.Add(time.Second / 10)
			}
			s.Look(now, supervisor.Look{Wanted: true, Daemon: supervisor.Answers})
			if orderly && s.Look(now, supervisor.Look{Daemon: supervisor.Answers}).Do != supervisor.Stop {
				t.Fatal("not stopped")
			}
		}
		if orderly != (waited == 0) {
			t.Errorf("orderly %v: it starts after %v", orderly, waited)
		}
	}
}
