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
		want    classification
	}{
		"with a session":                 {Process{Slice: "g0", Pod: "a", Container: "main", Session: true}, classification{}},
		"without a session":              {Process{Slice: "g0", Pod: "a", Container: "main"}, classification{Unhooked, false}},
		"OpenCL beside a session":        {Process{Slice: "g0", Pod: "a", Container: "main", Session: true, Library: "libnvidia-opencl.so.1"}, classification{Beside, true}},
		"OpenCL without a session":       {Process{Slice: "g0", Pod: "a", Container: "main", Library: "libnvidia-opencl.so.1"}, classification{Unhooked, false}},
		"OpenCL alone on the slice":      {Process{Slice: "g2", Pod: "a", Container: "alone", Library: "libnvidia-opencl.so.1"}, classification{}},
		"without a session, best effort": {Process{Slice: "g0", Pod: "b", Container: "main"}, classification{Unhooked, true}},
		"alone on the slice":             {Process{Slice: "g2", Pod: "a", Container: "alone"}, classification{}},
		"slice of another container":     {Process{Slice: "g1", Pod: "a", Container: "main", Session: true}, classification{WrongDevice, false}},
		"slice of no container":          {Process{Slice: "g3", Pod: "a", Container: "main", HasDeviceIDs: true}, classification{WrongDevice, false}},
		"sidecar":                        {Process{Slice: "g0", Pod: "a", Container: "proxy"}, classification{Unmanaged, false}},
		"another pod":                    {Process{Slice: "g0", Pod: "c", Container: "main"}, classification{Unmanaged, false}},
		"another pod with device IDs":    {Process{Slice: "g0", Pod: "c", Container: "main", HasDeviceIDs: true}, classification{Unmanaged, true}},
		"allocated by another plugin":    {Process{Slice: "g0", Pod: "c", Container: "main", AllocatedElsewhere: true}, classification{}},
		"host process":                   {Process{Slice: "g0"}, classification{OutsidePods, true}},
		"container not known":            {Process{Slice: "g1", Pod: "a"}, classification{}},
		"container not known, session":   {Process{Slice: "g0", Pod: "a", Session: true}, classification{}},
		"container not known, unhooked":  {Process{Slice: "g0", Pod: "a"}, classification{Unhooked, false}},
		"container not known, elsewhere": {Process{Slice: "g3", Pod: "a"}, classification{WrongDevice, false}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := classify(test.process, grants); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

// format returns findings as lines of kind, PID, and what to do.
func format(found []Finding) (lines []string) {
	for _, f := range found {
		line := fmt.Sprintf("%s %d", f.Kind, f.PID)
		if f.Report {
			line += " report"
		}
		if f.Kill {
			line += " kill"
		}
		lines = append(lines, line)
	}
	return lines
}

// TestObserve observes one process repeatedly; times are in seconds.
func TestObserve(t *testing.T) {
	unmanaged, unhooked := Process{PID: 1, Slice: "g0", Pod: "c", Container: "x"}, Process{PID: 2, Slice: "g0", Pod: "a", Container: "main"}
	hooked, host := unhooked, Process{PID: 3, Slice: "g0"}
	hooked.Session = true
	other := unmanaged
	other.StartTime = 9
	type observation struct {
		at   int
		seen []Process
		want []string
	}
	for name, observations := range map[string][]observation{
		"unmanaged is found at the second observation": {{0, []Process{unmanaged}, nil}, {2, []Process{unmanaged}, []string{"unmanaged 1 report kill"}}, {4, []Process{unmanaged}, []string{"unmanaged 1"}}},
		"unmanaged that is not killed":                 {{0, []Process{unmanaged}, nil}, {2, []Process{unmanaged}, []string{"unmanaged 1 report kill"}}, {12, []Process{unmanaged}, []string{"unmanaged 1 kill"}}, {602, []Process{unmanaged}, []string{"unmanaged 1 report kill"}}},
		"unmanaged that is gone between":               {{0, []Process{unmanaged}, nil}, {2, nil, nil}, {4, []Process{unmanaged}, nil}},
		"unmanaged whose PID is used again":            {{0, []Process{unmanaged}, nil}, {2, []Process{other}, nil}},
		"unhooked process after its grace period":      {{0, []Process{unhooked}, nil}, {9, []Process{unhooked}, nil}, {10, []Process{unhooked}, []string{"unhooked 2 report kill"}}},
		"grace period starts again":                    {{0, []Process{unhooked}, nil}, {9, []Process{hooked}, nil}, {11, []Process{unhooked}, nil}, {20, []Process{unhooked}, nil}, {21, []Process{unhooked}, []string{"unhooked 2 report kill"}}},
		"host process is never killed":                 {{0, []Process{host}, nil}, {100, []Process{host}, []string{"outside-pods 3 report"}}},
	} {
		t.Run(name, func(t *testing.T) {
			w := New(config)
			for _, o := range observations {
				got := format(w.Observe(start.Add(time.Duration(o.at)*time.Second), o.seen, grants))
				if diff := cmp.Diff(o.want, got); diff != "" {
					t.Errorf("after %d s\n%s", o.at, diff)
				}
			}
		})
	}
}

// TestRepeat: of a pod that keeps starting unmanaged processes one is reported in each period, and each is killed.
func TestRepeat(t *testing.T) {
	w := New(config)
	reported, killed := 0, 0
	var before []Process
	for i := range 600 { // 20 minutes
		fresh := Process{PID: i + 1, Slice: "g0", Pod: "c"}
		for _, f := range w.Observe(start.Add(time.Duration(i)*2*time.Second), append(before, fresh), grants) {
			if f.Report {
				reported++
			}
			if f.Kill {
				killed++
			}
		}
		before = []Process{fresh}
	}
	if reported != 2 || killed != 599 {
		t.Errorf("reported %d, killed %d; want 2 and 599", reported, killed)
	}
	if len(w.reported) > 1 || len(w.seen) > 2 || len(w.used) > 1 {
		t.Errorf("the watch keeps %d, %d, %d entries", len(w.reported), len(w.seen), len(w.used))
	}
}

// TestUsed: a slice is used from the second observation of an unmanaged process until some time after the last. A process with a share does not count.
func TestUsed(t *testing.T) {
	w := New(config)
	seen := []Process{
		{PID: 1, Slice: "g0", Pod: "c"}, {PID: 2, Slice: "g0"}, {PID: 3, Slice: "g0", Pod: "c"},
		{PID: 4, Slice: "g1", Pod: "a", Container: "alone"}, {PID: 5, Slice: "g2", Pod: "a", Container: "main"}, {PID: 6, Slice: "g0", Pod: "a", Container: "main"},
	}
	for _, observation := range []struct {
		at   int
		seen []Process
		want map[string][]string
	}{
		{0, seen, map[string][]string{}},
		{2, seen, map[string][]string{"g0": {"", "c"}, "g2": {"a"}}},
		{11, nil, map[string][]string{"g0": {"", "c"}, "g2": {"a"}}},
		{12, nil, map[string][]string{}},
	} {
		w.Observe(start.Add(time.Duration(observation.at)*time.Second), observation.seen, grants)
		if diff := cmp.Diff(observation.want, w.Used()); diff != "" {
			t.Errorf("after %d s\n%s", observation.at, diff)
		}
	}
}

// TestNeverKilled: in random observations no spared process is killed, none at all without the policy, and processes that may use a slice
// are not found.
func TestNeverKilled(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	kills, reports := New(config), New(Config{Grace: config.Grace, Linger: config.Linger, Repeat: config.Repeat, Retry: config.Retry})
	killed := map[Kind]int{}
	var seen []Process
	for i := range 5000 {
		if random.IntN(6) == 0 { // else the processes stay the same
			seen = nil
		}
		for len(seen) < 5 && random.IntN(3) > 0 {
			seen = append(seen, Process{
				PID: random.IntN(8), Slice: pick("g0", "g1", "g2"), Pod: pick("", "a", "b", "c"), Container: pick("", "main", "alone", "proxy"),
				Session: random.IntN(3) == 0, AllocatedElsewhere: random.IntN(8) == 0, HasDeviceIDs: random.IntN(4) == 0,
			})
		}
		now := start.Add(time.Duration(i) * 3 * time.Second)
		for _, f := range kills.Observe(now, seen, grants) {
			v := classify(f.Process, grants)
			if f.Kind == "" || f.Kind != v.kind || f.AllocatedElsewhere || f.Since.After(now) || !slices.Contains(seen, f.Process) {
				t.Fatalf("found %+v", f)
			}
			if f.Kill && (v.spared || f.Pod == "" || f.Kind == Unmanaged && f.HasDeviceIDs) {
				t.Fatalf("kills %+v", f)
			}
			if f.Kill {
				killed[f.Kind]++
			}
		}
		for _, f := range reports.Observe(now, seen, grants) {
			if f.Kill {
				t.Fatalf("kills %+v by the policy to report", f)
			}
		}
	}
	if killed[Unmanaged] == 0 || killed[WrongDevice] == 0 || killed[Unhooked] == 0 {
		t.Errorf("killed %v: some kind was never killed", killed)
	}
}

// BenchmarkObserve observes a node of eight devices with sixteen shares each, and a process in each container.
func BenchmarkObserve(b *testing.B) {
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
