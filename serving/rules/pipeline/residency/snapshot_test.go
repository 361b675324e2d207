package residency

import (
	"strings"
	"testing"
	"time"
)

// snapshotOf returns the snapshot of a node on which a has a turn on s0, b is loaded to s1 and c is evicted from there.
func snapshotOf(t *testing.T) string {
	t.Helper()
	n := newNode(t, Policy{}, 3, 2)
	for i, name := range []string{"a", "c"} {
		setWant(t, n, time.Duration(i), name, time.Minute, 1)
		carryOut(t, n, time.Duration(i))
	}
	if err := n.Finish(time.Second, "s1"); err != nil {
		t.Fatal(err)
	}
	setWant(t, n, time.Second, "b", time.Minute, 1)
	n.Dispatch(time.Second)
	if steps := n.Steps(); len(steps) != 1 || steps[0] != (Step{Evict, "c", "s1"}) {
		t.Fatalf("%+v", steps)
	}
	return string(n.Snapshot())
}

// TestRestore restores a node: the turn of a goes on until it is ended, and c is evicted again before b can be loaded.
func TestRestore(t *testing.T) {
	n, err := Restore(Policy{Host: 100 * gb}, time.Hour, []byte(snapshotOf(t)))
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Leases(time.Hour); len(got) != 1 || got[0] != (Lease{1, "a", "s0", 0, maxInstant}) {
		t.Errorf("%+v", got)
	}
	setWant(t, n, time.Hour, "b", 2*time.Hour, 1)
	d := n.Dispatch(time.Hour)
	if len(d.Starts) != 1 || d.Starts[0].Slice != "s1" {
		t.Errorf("%+v", d)
	}
	if steps := n.Steps(); len(steps) != 1 || steps[0] != (Step{Evict, "c", "s1"}) {
		t.Errorf("%+v", steps)
	}
	if err := n.Finish(time.Hour, "s0"); err != nil {
		t.Error(err)
	}
}

// Snapshots that do not fit together are refused, with what is wrong.
func TestRestoreRefuses(t *testing.T) {
	const function = `{"name":"a","tenant":"t","onlySlice":"","memoryBytes":6442450944,`
	for name, c := range map[string]struct{ old, new, want string }{
		"version":                 {`"version":1`, `"version":2`, "version"},
		"no JSON":                 {`{"version"`, `"version"`, "invalid"},
		"unknown field":           {`"turn":"a"`, `"turn":"a","more":1`, "unknown field"},
		"missing field":           {`"turn":"a",`, ``, "missing"},
		"misspelled field":        {`"turn":"a"`, `"Turn":"a"`, "misspelled"},
		"two slices of a name":    {`"id":"s1"`, `"id":"s0"`, "shared already"},
		"two functions of a name": {`"name":"b"`, `"name":"a"`, "registered already"},
		"not valid":               {`"tenant":"t","onlySlice":"","memoryBytes":6442450944`, `"tenant":"t","onlySlice":"","memoryBytes":-1`, "memory"},
		"unknown slice":           {`"slice":"s0"`, `"slice":"s7"`, "no slice"},
		"slice too small":         {function, strings.Replace(function, "6442450944", "64424509440", 1), "cannot run"},
		"slice that is full":      {`"slice":"s1"`, `"slice":"s0"`, "exceed"},
		"in two places":           {`"slice":"s0","host":false`, `"slice":"s0","host":true`, "too"},
		"no instance":             {`"instance":true,"leaves":false,"slice":"s0"`, `"instance":false,"leaves":false,"slice":"s0"`, "no instance"},
		"unknown place":           {`"place":"s0"`, `"place":"s7"`, "no slice"},
		"place that is full":      {`"place":"s0"`, `"place":"s1"`, "beside"},
		"unknown state":           {`"placeState":"resident"`, `"placeState":"gone"`, "unknown"},
		"turn of nobody":          {`"turn":"a"`, `"turn":"z"`, "not on the slice"},
		"turn on another slice":   {`"turn":"a"`, `"turn":"c"`, "not on the slice"},
		"turn to come":            {`"turnNumber":1`, `"turnNumber":9`, "turnNumber"},
		"time to come":            {`"turnNanos":1000000000`, `"turnNanos":-1`, "outside"},
		"failures":                {`"failedLoads":0`, `"failedLoads":-1`, "failedLoads"},
		"pause":                   {`"pauseNanos":0`, `"pauseNanos":60000000001`, "failedLoads"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(snapshotOf(t), c.old, c.new, 1)
			if text == snapshotOf(t) {
				t.Fatalf("no %s in %s", c.old, text)
			}
			if _, err := Restore(Policy{Host: 100 * gb}, 0, []byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
	if _, err := Restore(Policy{Host: -1}, 0, []byte(snapshotOf(t))); err == nil {
		t.Error("a policy that is not valid is accepted")
	}
}

// With less host memory than before, what was used last stays.
func TestRestoreLessHost(t *testing.T) {
	n, err := Restore(Policy{}, 0, []byte(snapshotOf(t)))
	if err != nil {
		t.Fatal(err)
	}
	if got := n.Residency("c"); got.String() != "Cold" {
		t.Errorf("c is %v without host memory", got)
	}
}

// FuzzRestore restores arbitrary snapshots: one that is accepted is consistent, and its own snapshot is accepted.
func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"version":1,"turns":1,"slices":[],"functions":[]}`))
	f.Add([]byte(`{"version":1,"turns":1,"slices":[{"id":"s0","kind":{"name":"1g","compute":1,"memory":10},"turn":"a","turnNumber":1,"turnNanos":0,"idleNanos":0,"staleTenants":[]}],` +
		`"functions":[{"name":"a","tenant":"","onlySlice":"","memoryBytes":10,"timesNanos":{"1g":1},"loadWarmNanos":0,"loadColdNanos":0,"instance":true,` +
		`"leaves":false,"slice":"s0","host":false,"ageNanos":0,"unusedNanos":0,"place":"s0","placeState":"resident","failedLoads":0,"pauseNanos":0}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := Restore(Policy{Host: 20 * gb}, 0, text)
		if err != nil {
			return
		}
		c := &checker{T: t, node: n, waiting: map[uint64]bool{}, running: map[string]Start{}}
		for _, s := range n.slices {
			if s.running != nil {
				c.running[s.ID] = Start{Slice: s.ID}
			}
			if held := n.heldOn(s); held > s.Kind.Memory {
				t.Fatalf("processes hold %d of %d", held, s.Kind.Memory)
			}
		}
		c.account()
		if _, err := Restore(Policy{Host: 20 * gb}, time.Second, n.Snapshot()); err != nil {
			t.Fatalf("%v: %s", err, n.Snapshot())
		}
	})
}
