package watchdog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	start  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	config = Config{Grace: 10 * time.Second, Linger: 10 * time.Second, Repeat: 10 * time.Minute, Retry: 10 * time.Second, Kill: true}
	grants = []Grant{
		{Pod: "a", Container: "main", Slices: []string{"g0"}, Hooked: true},
		{Pod: "a", Container: "alone", Slices: []string{"g1", "g2"}},
		{Pod: "b", Container: "main", Slices: []string{"g0"}, Hooked: true, BestEffort: true},
	}
)

func TestJudge(t *testing.T) {
	for name, test := range map[string]struct {
		process Process
		want    verdict
	}{
		"with a session":                 {Process{Slice: "g0", Pod: "a", Container: "main", Session: true}, verdict{}},
		"without":                        {Process{Slice: "g0", Pod: "a", Container: "main"}, verdict{Unhooked, false}},
		"without, best effort":           {Process{Slice: "g0", Pod: "b", Container: "main"}, verdict{Unhooked, true}},
		"alone on the slice":             {Process{Slice: "g2", Pod: "a", Container: "alone"}, verdict{}},
		"a neighbour's slice":            {Process{Slice: "g1", Pod: "a", Container: "main", Session: true}, verdict{Trespasser, false}},
		"nobody's slice":                 {Process{Slice: "g3", Pod: "a", Container: "main", Ticketed: true}, verdict{Trespasser, false}},
		"a sidecar":                      {Process{Slice: "g0", Pod: "a", Container: "proxy"}, verdict{Stranger, false}},
		"another pod":                    {Process{Slice: "g0", Pod: "c", Container: "main"}, verdict{Stranger, false}},
		"another pod with tickets":       {Process{Slice: "g0", Pod: "c", Container: "main", Ticketed: true}, verdict{Stranger, true}},
		"lent by another plugin":         {Process{Slice: "g0", Pod: "c", Container: "main", AllocatedElsewhere: true}, verdict{}},
		"of the host":                    {Process{Slice: "g0"}, verdict{Outsider, true}},
		"container not known":            {Process{Slice: "g1", Pod: "a"}, verdict{}},
		"container not known, session":   {Process{Slice: "g0", Pod: "a", Session: true}, verdict{}},
		"container not known, unhooked":  {Process{Slice: "g0", Pod: "a"}, verdict{Unhooked, false}},
		"container not known, elsewhere": {Process{Slice: "g3", Pod: "a"}, verdict{Trespasser, false}},
	} {
		if got := judge(test.process, grants); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

// short writes findings down: kind, PID, and T or E for what is due.
func short(found []Finding) (lines []string) {
	for _, f := range found {
		line := fmt.Sprintf("%s %d", f.Kind, f.PID)
		if f.Report {
			line += " T"
		}
		if f.Kill {
			line += " E"
		}
		lines = append(lines, line)
	}
	return lines
}

// TestWhen is looks at one process: seconds since the first, and what is found.
func TestWhen(t *testing.T) {
	stranger, unhooked := Process{PID: 1, Slice: "g0", Pod: "c", Container: "x"}, Process{PID: 2, Slice: "g0", Pod: "a", Container: "main"}
	hooked, host := unhooked, Process{PID: 3, Slice: "g0"}
	hooked.Session = true
	other := stranger
	other.StartTime = 9
	type look struct {
		at   int
		seen []Process
		want []string
	}
	for name, looks := range map[string][]look{
		"a stranger counts when it is seen twice": {{0, []Process{stranger}, nil}, {2, []Process{stranger}, []string{"stranger 1 T E"}}, {4, []Process{stranger}, []string{"stranger 1"}}},
		"and again when it does not end":          {{0, []Process{stranger}, nil}, {2, []Process{stranger}, []string{"stranger 1 T E"}}, {12, []Process{stranger}, []string{"stranger 1 E"}}, {602, []Process{stranger}, []string{"stranger 1 T E"}}},
		"not when it has gone between":            {{0, []Process{stranger}, nil}, {2, nil, nil}, {4, []Process{stranger}, nil}},
		"nor when its PID is another's":           {{0, []Process{stranger}, nil}, {2, []Process{other}, nil}},
		"the hook has its grace":                  {{0, []Process{unhooked}, nil}, {9, []Process{unhooked}, nil}, {10, []Process{unhooked}, []string{"unhooked 2 T E"}}},
		"which begins anew":                       {{0, []Process{unhooked}, nil}, {9, []Process{hooked}, nil}, {11, []Process{unhooked}, nil}, {20, []Process{unhooked}, nil}, {21, []Process{unhooked}, []string{"unhooked 2 T E"}}},
		"the host is never ended":                 {{0, []Process{host}, nil}, {100, []Process{host}, []string{"outsider 3 T"}}},
	} {
		w := New(config)
		for _, l := range looks {
			got := short(w.Observe(start.Add(time.Duration(l.at)*time.Second), l.seen, grants))
			if diff := cmp.Diff(l.want, got); diff != "" {
				t.Errorf("%s: after %d s\n%s", name, l.at, diff)
			}
		}
	}
}

// TestTold: a pod that starts strangers without end is told of once in a while, and each of them is ended.
func TestTold(t *testing.T) {
	w := New(config)
	told, ended := 0, 0
	var before []Process
	for i := range 600 { // 20 minutes
		fresh := Process{PID: i + 1, Slice: "g0", Pod: "c"}
		for _, f := range w.Observe(start.Add(time.Duration(i)*2*time.Second), append(before, fresh), grants) {
			if f.Report {
				told++
			}
			if f.Kill {
				ended++
			}
		}
		before = []Process{fresh}
	}
	if told != 2 || ended != 599 {
		t.Errorf("told %d times, ended %d; want 2 and 599", told, ended)
	}
	if len(w.reported) > 1 || len(w.seen) > 2 || len(w.used) > 1 {
		t.Errorf("remembers %d, %d, %d", len(w.reported), len(w.seen), len(w.used))
	}
}

// TestUsed: a slice is used from the second look at a stranger on, and some time after the last. Who has a share uses nothing.
func TestUsed(t *testing.T) {
	w := New(config)
	seen := []Process{
		{PID: 1, Slice: "g0", Pod: "c"}, {PID: 2, Slice: "g0"}, {PID: 3, Slice: "g0", Pod: "c"},
		{PID: 4, Slice: "g1", Pod: "a", Container: "alone"}, {PID: 5, Slice: "g2", Pod: "a", Container: "main"}, {PID: 6, Slice: "g0", Pod: "a", Container: "main"},
	}
	for _, look := range []struct {
		at   int
		seen []Process
		want map[string][]string
	}{
		{0, seen, map[string][]string{}},
		{2, seen, map[string][]string{"g0": {"", "c"}, "g2": {"a"}}},
		{11, nil, map[string][]string{"g0": {"", "c"}, "g2": {"a"}}},
		{12, nil, map[string][]string{}},
	} {
		w.Observe(start.Add(time.Duration(look.at)*time.Second), look.seen, grants)
		if diff := cmp.Diff(look.want, w.Used()); diff != "" {
			t.Errorf("after %d s\n%s", look.at, diff)
		}
	}
}

// TestNeverEnded: whatever is seen in whatever order, who is spared lives, and without the policy everybody does; who has a
// right to be there is not found at all. The control is that others are ended.
func TestNeverEnded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	ends, reports := New(config), New(Config{Grace: config.Grace, Linger: config.Linger, Repeat: config.Repeat, Retry: config.Retry})
	ended := map[Kind]int{}
	var seen []Process
	for i := range 5000 {
		if random.IntN(6) == 0 { // else all stay as they are
			seen = nil
		}
		for len(seen) < 5 && random.IntN(3) > 0 {
			seen = append(seen, Process{
				PID: random.IntN(8), Slice: pick("g0", "g1", "g2"), Pod: pick("", "a", "b", "c"), Container: pick("", "main", "alone", "proxy"),
				Session: random.IntN(3) == 0, AllocatedElsewhere: random.IntN(8) == 0, Ticketed: random.IntN(4) == 0,
			})
		}
		now := start.Add(time.Duration(i) * 3 * time.Second)
		for _, f := range ends.Observe(now, seen, grants) {
			v := judge(f.Process, grants)
			if f.Kind == "" || f.Kind != v.kind || f.AllocatedElsewhere || f.Since.After(now) || !slices.Contains(seen, f.Process) {
				t.Fatalf("found %+v", f)
			}
			if f.Kill && (v.spared || f.Pod == "" || f.Kind == Stranger && f.Ticketed) {
				t.Fatalf("ends %+v", f)
			}
			if f.Kill {
				ended[f.Kind]++
			}
		}
		for _, f := range reports.Observe(now, seen, grants) {
			if f.Kill {
				t.Fatalf("ends %+v by the policy to report", f)
			}
		}
	}
	if ended[Stranger] == 0 || ended[Trespasser] == 0 || ended[Unhooked] == 0 {
		t.Errorf("ended %v: some kind never", ended)
	}
}

// BenchmarkLook is a node of eight devices with sixteen shares each, and a process in every container.
func BenchmarkLook(b *testing.B) {
	w := New(config)
	var seen []Process
	var granted []Grant
	for i := range 8 * 16 {
		slice, pod := fmt.Sprint("g", i%8), fmt.Sprint("pod", i)
		seen = append(seen, Process{PID: i, Slice: slice, Pod: pod, Container: "main", Session: true})
		granted = append(granted, Grant{Pod: pod, Container: "main", Slices: []string{slice}, Hooked: true})
	}
	for i := range b.N {
		if found := w.Observe(start.Add(time.Duration(i)), seen, granted); len(found) > 0 {
			b.Fatal(found)
		}
	}
}
