package watchdog

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Finding is a process that should not be as it is, and what is due about it now.
type Finding struct {
	Process
	Kind  Kind
	Since time.Time // when it was first seen so
	Tell  bool      // nothing of this kind has been told of its pod lately
	End   bool      // it is to be ended
}

// Watch remembers from look to look. It is not safe for concurrent use.
type Watch struct {
	config Config
	seen   map[key]sight
	told   map[subject]time.Time
	used   map[use]time.Time
}

type key struct {
	pid   int
	born  uint64
	slice string
}

type sight struct {
	kind  Kind
	since time.Time
	ended time.Time // when its end was last due; zero: never
}

// subject is what is told once in a while: of a pod, or for those in none of a slice.
type subject struct {
	of   string
	kind Kind
}

type use struct{ slice, pod string }

// New gives a watch that has seen nothing.
func New(c Config) *Watch {
	return &Watch{config: c, seen: map[key]sight{}, told: map[subject]time.Time{}, used: map[use]time.Time{}}
}

// Look takes in all processes that are seen at a time, and gives what is found by then, by slice and PID. It forgets those
// that are not seen any more. Times do not go back.
func (w *Watch) Look(now time.Time, processes []Process, grants []Grant) (found []Finding) {
	maps.DeleteFunc(w.told, func(_ subject, at time.Time) bool { return now.Sub(at) >= w.config.Repeat })
	maps.DeleteFunc(w.used, func(_ use, at time.Time) bool { return now.Sub(at) >= w.config.Linger })
	before := w.seen
	w.seen = map[key]sight{}
	for _, p := range slices.SortedFunc(slices.Values(processes), order) {
		v := judge(p, grants)
		if v.kind == "" {
			continue
		}
		k := key{p.PID, p.Born, p.Slice}
		s, ok := before[k]
		if !ok || s.kind != v.kind {
			s = sight{kind: v.kind, since: now}
		}
		if w.counts(s, now) {
			found = append(found, w.find(now, p, v, &s))
		}
		w.seen[k] = s
	}
	return found
}

func order(a, b Process) int {
	return cmp.Or(cmp.Compare(a.Slice, b.Slice), cmp.Compare(a.PID, b.PID), cmp.Compare(a.Born, b.Born))
}

// counts says that a sight is no accident. One look alone may see a process whose share is just being taken back, or another
// one under the PID that the driver meant; who was there before the second look began is who it meant. And a program may use
// its device before the token server has heard of it.
func (w *Watch) counts(s sight, now time.Time) bool {
	if s.kind == Unhooked {
		return now.Sub(s.since) >= w.config.Grace
	}
	return now.After(s.since)
}

func (w *Watch) find(now time.Time, p Process, v verdict, s *sight) Finding {
	f := Finding{Process: p, Kind: v.kind, Since: s.since}
	about := subject{cmp.Or(p.Pod, p.Slice), v.kind}
	if _, told := w.told[about]; !told {
		f.Tell = true
		w.told[about] = now
	}
	if w.config.End && !v.spared && (s.ended.IsZero() || now.Sub(s.ended) >= w.config.Retry) {
		f.End = true
		s.ended = now
	}
	if v.kind != Unhooked { // which is accounted for
		w.used[use{p.Slice, p.Pod}] = now
	}
	return f
}

// Used gives, for each slice that others used until lately, the pods they are of, sorted; an empty one stands for none.
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
