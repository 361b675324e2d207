package kube

import "time"

// Work is what the program of a trial has done lately, by the counts of the node agent. A trial is a pod with AnnotationTrialQuota that is alone on its slice.
//
// It covers a minute: whoever wants to know more looks more often. Each count is one write of the pod, so there are few.
type Work struct {
	Since   time.Time   `json:"since"`             // from when the agent counts, by its clock
	First   *WorkCount  `json:"first,omitempty"`   // the first count with a launch; nil: there is none
	Changed int64       `json:"changed,omitempty"` // milliseconds from Since to the last count that had more launches than the one before; 0: none had
	Counts  []WorkCount `json:"counts"`            // oldest first
}

// WorkCount is what a program has done from Work.Since on.
type WorkCount struct {
	At       int64  `json:"ms"`     // milliseconds from Work.Since
	Busy     int64  `json:"busyMs"` // milliseconds of device time
	Launches uint64 `json:"launches"`
}

// WorkPeriod is the time between two counts, at the least.
const WorkPeriod = 5 * time.Second

// WorkKept is how many counts a Work has at most: those of a minute, and one before it.
const WorkKept = 13

// Counted returns the work with another count: what was done until a time. It changes nothing of w, which is nil before the first count. due is false, and
// the work as it was, where the last count is younger than WorkPeriod.
func (w *Work) Counted(now time.Time, busy time.Duration, launches uint64) (next *Work, due bool) {
	if w == nil {
		return &Work{Since: now, Counts: []WorkCount{{Busy: busy.Milliseconds(), Launches: launches}}}, true
	}
	last := w.Counts[len(w.Counts)-1]
	at := now.Sub(w.Since).Milliseconds()
	if at-last.At < WorkPeriod.Milliseconds() {
		return w, false
	}
	count := WorkCount{at, busy.Milliseconds(), launches}
	next = &Work{Since: w.Since, First: w.First, Changed: w.Changed}
	if launches > last.Launches {
		next.Changed = at
		if next.First == nil {
			next.First = &count
		}
	}
	next.Counts = append(append(next.Counts, w.Counts[max(0, len(w.Counts)+1-WorkKept):]...), count)
	return next, true
}

// Valid reports whether the counts can be those of an agent. Whoever may change a pod can write others.
func (w *Work) Valid() bool {
	if len(w.Counts) == 0 || len(w.Counts) > WorkKept {
		return false
	}
	var before WorkCount
	for at, c := range w.Counts {
		if c.At < before.At || at > 0 && c.At == before.At || c.Busy < before.Busy || c.Launches < before.Launches || c.At > maxWork || c.Busy > maxWork || c.Launches > maxLaunches {
			return false
		}
		before = c
	}
	return w.Changed >= 0 && w.Changed <= before.At && (w.First == nil || w.First.At >= 0 && w.First.At <= before.At && w.First.Launches <= before.Launches)
}

// Bounds of counts, in milliseconds and launches: a hundred years, and a launch each nanosecond of an hour.
const (
	maxWork     = 100 * 366 * 24 * 3600 * 1000
	maxLaunches = 3600e9 * 1000
)
