package kube

import "time"

// Work is what the program of a trial has done lately, as counted by the node agent. A trial is a pod with AnnotationTrialQuota that is alone on its slice.
//
// It covers a minute; a reader who wants to know more has to read it more often. Each count costs one write of the pod, so there are few.
type Work struct {
	Since   time.Time   `json:"since"`             // when counting began, by the agent's clock
	First   *WorkCount  `json:"first,omitempty"`   // the first count with a launch; nil if there is none
	Changed int64       `json:"changed,omitempty"` // milliseconds from Since to the last count with more launches than the count before it; 0 if there is none
	Counts  []WorkCount `json:"counts"`            // oldest first
}

// WorkCount is what a program has done since Work.Since.
type WorkCount struct {
	At       int64  `json:"ms"`     // milliseconds from Work.Since
	Busy     int64  `json:"busyMs"` // milliseconds of device time
	Launches uint64 `json:"launches"`
}

// WorkPeriod is the least time between two counts.
const WorkPeriod = 5 * time.Second

// WorkKept is the most counts that a Work holds: those of a minute, and the one before them.
const WorkKept = 13

// Counted returns a Work that also has the count of what was done until now. It does not modify w, which is nil before the first count. If the last
// count is younger than WorkPeriod, it returns w as it is, and due is false.
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

// Valid reports whether the counts can be those of an agent. Anyone who may change the pod can write others.
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

// Bounds on counts: a hundred years in milliseconds, and a launch in each nanosecond of an hour.
const (
	maxWork     = 100 * 366 * 24 * 3600 * 1000
	maxLaunches = 3600e9 * 1000
)
