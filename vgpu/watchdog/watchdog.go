// Package watchdog decides which processes use a node's slices without a share that allows it, since when, and whether to report or kill
// them. The node agent supplies what it has observed and what it has granted, and carries out the decisions.
package watchdog

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Kind is how a process violates the shares of a slice.
type Kind string

// The kinds.
const (
	Unmanaged   Kind = "unmanaged"    // its container has no share
	WrongDevice Kind = "wrong-device" // its container has a share, but of other slices
	Unhooked    Kind = "unhooked"     // its container shares the slice, but the process has no session at the token server
	OutsidePods Kind = "outside-pods" // it is in no pod; it is reported, never killed
	Beside      Kind = "beside"       // it has a session, but also a library that uses the GPU without the hook; it is reported, never killed
	Uncounted   Kind = "uncounted"    // its container has memory that the hook does not count, within the share; it is reported, never killed
	Overdrawn   Kind = "overdrawn"    // its container has more memory than its share
)

// Kinds lists all kinds of violations.
var Kinds = []Kind{Unmanaged, WrongDevice, Unhooked, OutsidePods, Beside, Uncounted, Overdrawn}

// Process is an observed process that uses a slice.
type Process struct {
	PID                int
	StartTime          uint64 // in clock ticks of the kernel; tells apart processes that get the same PID
	Slice              string
	Pod                string      // UID; empty if it is in no pod
	Container          string      // name; empty if it is not known yet
	Memory             share.Bytes // what the driver counts for it on the slice
	Library            string      // by which it uses the GPU without the hook; empty if none is known
	Unhooked           string      // why it runs without the hook; empty if it does not, or the reason is not known
	Session            bool        // it has a session at the token server
	AllocatedElsewhere bool        // another device plugin has allocated the device to its container
	HasDeviceIDs       bool        // the kubelet has allocated gshare's device device IDs to its container, or may have
}

// Grant is the granted share of one container, as far as the watchdog needs it.
type Grant struct {
	Pod, Container string
	Slices         []string
	Hooked         bool // its processes must have sessions at the token server
	BestEffort     bool // it may run where its share cannot be enforced
}

// classification is what the observation of a process shows: the kind of violation, if any, and whether the process is exempt from being
// killed.
type classification struct {
	kind   Kind // empty: the process may use the slice
	spared bool // it is reported, but never killed
}

// classify compares a process with the grants. While its container is unknown, it may use whatever any container of its pod may use. If
// another device plugin has allocated the device to its container, it violates nothing.
func classify(p Process, grants []Grant) classification {
	if p.AllocatedElsewhere {
		return classification{}
	}
	if p.Pod == "" {
		return classification{OutsidePods, true}
	}
	v := classification{Unmanaged, p.HasDeviceIDs}
	for _, g := range grants {
		switch {
		case g.Pod != p.Pod || p.Container != "" && g.Container != p.Container:
		case !slices.Contains(g.Slices, p.Slice):
			if v.kind == Unmanaged {
				v = classification{WrongDevice, false}
			}
		case g.Hooked && !p.Session:
			v = classification{Unhooked, g.BestEffort}
		case g.Hooked && p.Library != "":
			v = classification{Beside, true}
		default:
			return classification{}
		}
	}
	return v
}

// Config configures a Watch.
type Config struct {
	Grace  time.Duration // how long a process may use a slice before it has a session
	Linger time.Duration // how long a slice counts as used after its last unmanaged process was observed
	Repeat time.Duration // least time between two reports of one kind on one pod
	Retry  time.Duration // least time between two attempts to kill one process
	Kill   bool          // kill processes that are unmanaged, on the wrong device or unhooked
}

// Finding is a process that violates the shares of a slice, and whether to report or kill it now.
type Finding struct {
	Process
	Kind   Kind
	Since  time.Time    // when the violation was first observed
	Report bool         // no violation of this kind by its pod was reported lately
	Kill   bool         // the process is to be killed
	Counts MemoryCounts // of its container, for Uncounted and Overdrawn
}

// Watch compares observed GPU processes with the granted shares, and decides which to report or kill. It is not safe for concurrent use.
type Watch struct {
	config   Config
	seen     map[processKey]violation
	reported map[reportKey]time.Time
	used     map[usage]time.Time
}

// processKey identifies a process on a slice across observations.
type processKey struct {
	pid       int
	startTime uint64
	slice     string
}

// violation is what a Watch remembers about a process that violates the shares of a slice.
type violation struct {
	kind   Kind
	since  time.Time
	killed time.Time // when a kill was last decided; zero: never
}

// reportKey identifies what is reported only once in a while: a kind of violation by a pod or, for processes outside of pods, on a slice.
type reportKey struct {
	of   string // pod or slice
	kind Kind
}

// usage is the use of a slice by a pod without a share of it. The pod is empty for processes outside of pods.
type usage struct{ slice, pod string }

// New returns a Watch without any observations.
func New(c Config) *Watch {
	return &Watch{config: c, seen: map[processKey]violation{}, reported: map[reportKey]time.Time{}, used: map[usage]time.Time{}}
}

// Observe compares all GPU processes that run now with the grants, and returns the confirmed violations, sorted by slice and PID. It
// forgets processes that are not in the list. now must not decrease from call to call.
func (w *Watch) Observe(now time.Time, processes []Process, grants []Grant) (found []Finding) {
	maps.DeleteFunc(w.reported, func(_ reportKey, at time.Time) bool { return now.Sub(at) >= w.config.Repeat })
	maps.DeleteFunc(w.used, func(_ usage, at time.Time) bool { return now.Sub(at) >= w.config.Linger })
	before := w.seen
	w.seen = map[processKey]violation{}
	for _, p := range slices.SortedFunc(slices.Values(processes), compare) {
		judged := classify(p, grants)
		if judged.kind == "" {
			continue
		}
		k := processKey{p.PID, p.StartTime, p.Slice}
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

// isConfirmed reports whether a violation has lasted long enough to act on. A single observation may show a process whose share is just
// being released, or another process with a reused PID. A process without a session has a grace period to connect to the token server.
func (w *Watch) isConfirmed(v violation, now time.Time) bool {
	if v.kind == Unhooked {
		return now.Sub(v.since) >= w.config.Grace
	}
	return now.After(v.since)
}

// finding returns the Finding for a confirmed violation, and records when it was reported and when a kill was decided.
func (w *Watch) finding(now time.Time, p Process, judged classification, v *violation) Finding {
	f := Finding{Process: p, Kind: judged.kind, Since: v.since}
	about := reportKey{cmp.Or(p.Pod, p.Slice), judged.kind}
	if _, reported := w.reported[about]; !reported {
		f.Report = true
		w.reported[about] = now
	}
	if w.config.Kill && !judged.spared && (v.killed.IsZero() || now.Sub(v.killed) >= w.config.Retry) {
		f.Kill = true
		v.killed = now
	}
	if judged.kind != Unhooked && judged.kind != Beside { // these two have a share, which is accounted for
		w.used[usage{p.Slice, p.Pod}] = now
	}
	return f
}

// Used returns, for each slice ID, the sorted UIDs of the pods that use the slice without a share, or did until recently. An empty UID
// stands for processes outside of pods.
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
