package faults

import (
	"testing"
	"time"
)

const (
	wakeLimit    = 2 * time.Second
	wakeAttempts = 3 // the machine may be busy
)

// wake is an event after which the pod "waiting" fits. prepare sets up the cluster so that the pod has to wait.
type wake struct {
	name           string
	prepare, event func(*lab)
}

func TestWaitingPodIsWoken(t *testing.T) {
	for _, w := range wakes {
		t.Run(w.name, func(t *testing.T) {
			l := newLab(t)
			l.sharedScheduler()
			for range wakeAttempts {
				l.clean()
				if l.measure(w) <= wakeLimit {
					return
				}
			}
			t.Errorf("the pod was not bound within %v in any of %d attempts", wakeLimit, wakeAttempts)
		})
	}
}

// measure returns the time from just before the event to the watch event that shows the waiting pod bound.
func (l *lab) measure(w wake) time.Duration {
	l.t.Helper()
	w.prepare(l)
	l.waitRefused("waiting")
	began := time.Now()
	w.event(l)
	if !l.board.waitAtMost(l.ctx, 10*time.Second, func(p pods) bool { return p["default/waiting"].Spec.NodeName != "" }) {
		l.t.Errorf("not bound within 10 s")
		return time.Hour
	}
	took := time.Since(began)
	l.t.Logf("bound %v after the event", took.Round(time.Millisecond))
	l.finish()
	return took
}
