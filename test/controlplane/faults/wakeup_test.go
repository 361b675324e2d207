package faults

import (
	"testing"
	"time"
)

// wakeLimit is far below the 5 min after which the scheduler tries every pod again, and above what a busy machine needs.
const wakeLimit = 30 * time.Second

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
			l.clean()
			l.measure(w)
		})
	}
}

// measure logs the time from just before the event to the watch event that shows the waiting pod bound.
func (l *lab) measure(w wake) {
	l.t.Helper()
	w.prepare(l)
	l.waitRefused("waiting")
	began := time.Now()
	w.event(l)
	if !l.board.waitAtMost(l.ctx, wakeLimit, func(p pods) bool { return p["default/waiting"].Spec.NodeName != "" }) {
		l.t.Fatalf("not bound within %v", wakeLimit)
	}
	l.t.Logf("bound %v after the event", time.Since(began).Round(time.Millisecond))
	l.finish()
}
