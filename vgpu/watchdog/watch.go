package watchdog

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Finding is a process that violates the shares of a slice, and what to do about it now.
type Finding struct {
	Process
	Kind   Kind
	Since  time.Time // when the violation was first observed
	Report bool      // none of this kind was reported of its pod lately
	Kill   bool      // the process is to be killed
}

// Watch compares the processes of successive observations with the grants. It is not safe for concurrent use.
type Watch struct {
	config   Config
	seen     map[key]violation
	reported map[subject]time.Time
	used     map[use]time.Time
}

// key identifies a process on a slice.
type key struct {
	pid       int
	startTime uint64
	slice     string
}

// violation is what is known of a process that violates the shares of a slice.
type violation struct {
	kind   Kind
	since  time.Time
	killed time.Time // when a kill was last decided; zero: never
}

// subject is what is reported once in a while: a kind of violation of a pod, or of a slice by processes in no pod.
type subject struct {
	of   string // pod or slice
	kind Kind
}

// use is the use of a slice by a pod; empty for processes in no pod.
type use struct{ slice, pod string }

// New returns a Watch that has observed nothing.
func New(c Config) *Watch {
	return &Watch{config: c, seen: map[key]violation{}, reported: map[subject]time.Time{}, used: map[use]time.Time{}}
}

// Observe processes one observation of all processes, and returns the findings, sorted by slice and PID. It forgets processes that are
// not observed any more. Times must not decrease from call to call.
func (w *Watch) Observe(now time.Time, processes []Process, grants []Grant) (found []Finding) {
	maps.DeleteFunc(w.reported, func(_ subject, at time.Time) bool { return now.Sub(at) >= w.config.Repeat })
	maps.DeleteFunc(w.used, func(_ use, at time.Time) bool { return now.Sub(at) >= w.config.Linger })
	before := w.seen
	w.seen = map[key]violation{}
	for _, p := range slices.SortedFunc(slices.Values(processes), compare) {
		judged := judge(p, grants)
		if judged.kind == "" {
			continue
		}
		k := key{p.PID, p.StartTime, p.Slice}
		v, ok := before[k]
		if !ok || v.kind != judged.kind {
			v = violation{kind: judged.kind, since: now}
		}
		if w.isConfirmed(v, now) {
			found = append(found, w.finding(now, p, judged, &v))
		}
		w.seen[k] = v
	}
	return found
}

// compare orders processes by slice, PID and start time.
func compare(a, b Process) int {
	return cmp.Or(cmp.Compare(a.Slice, b.Slice), cmp.Compare(a.PID, b.PID), cmp.Compare(a.StartTime, b.StartTime))
}

// isConfirmed reports whether a violation has lasted long enough. A single observation may show a process whose share is just being
// released, or another process that has got the PID meanwhile. An unhooked process has a grace period: it may use its device before the
// token server has accepted it.
func (w *Watch) isConfirmed(v violation, now time.Time) bool {
	if v.kind == Unhooked {
		return now.Sub(v.since) >= w.config.Grace
	}
	return now.After(v.since)
}

// finding returns the finding for a confirmed violation, and stores what it decides.
func (w *Watch) finding(now time.Time, p Process, judged verdict, v *violation) Finding {
	f := Finding{Process: p, Kind: judged.kind, Since: v.since}
	about := subject{cmp.Or(p.Pod, p.Slice), judged.kind}
	if _, reported := w.reported[about]; !reported {
		f.Report = true
		w.reported[about] = now
	}
	if w.config.Kill && !judged.spared && (v.killed.IsZero() || now.Sub(v.killed) >= w.config.Retry) {
		f.Kill = true
		v.killed = now
	}
	if judged.kind != Unhooked { // whose share is accounted for
		w.used[use{p.Slice, p.Pod}] = now
	}
	return f
}

// Used returns the pods that use slices without a share, or did until lately, by slice, sorted. An empty pod stands for processes in none.
func (w *Watch) Used() map[string][]string {
	used := map[string][]string{}
	for u := range w.used {
		used[u.slice] = append(used[u.slice], u.pod)
	}
	for _, pods := range used {
		slices.Sort(pods)
	}
	return used
}
