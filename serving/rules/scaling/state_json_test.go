package scaling

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const goldenState = "testdata/state.json"

func storedState() State {
	c := Configuration{
		Share: share.Share{SMRequest: 120, SMLimit: 240, QuotaRequest: 400, QuotaLimit: 800, Memory: 1525 * share.MiB},
		Batch: 8, Throughput: 40.5,
	}
	return State{
		LastID:  7,
		Samples: []Sample{{At: time.Second, Load: 12.5}, {At: 2 * time.Second, Load: 0}},
		Instances: []Instance{
			{ID: 3, Configuration: c, Since: 1500 * time.Millisecond}, {ID: 5, Configuration: size, Residency: Shared},
			{ID: 6, Configuration: size, Residency: Warm, Since: 1},
		},
	}
}

// The bytes in testdata are those that processes of this version leave behind: a change that cannot read them needs another version.
func TestStateJSON(t *testing.T) {
	golden, err := os.ReadFile(goldenState)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(storedState(), "", "  ")
	if err != nil || string(text)+"\n" != string(golden) {
		t.Errorf("%v\n%s\nwant\n%s", err, text, golden)
	}
	var read State
	if err := json.Unmarshal(golden, &read); err != nil || !reflect.DeepEqual(read, storedState()) {
		t.Errorf("%+v, %v", read, err)
	}
	empty, err := json.Marshal(State{})
	if again := storedState(); err != nil || json.Unmarshal(empty, &again) != nil || !reflect.DeepEqual(again, State{}) {
		t.Errorf("%s, %v, reads as %+v", empty, err, again)
	}
}

func TestStateJSONRefuses(t *testing.T) {
	golden, err := os.ReadFile(goldenState)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, old, new, message string }{
		{"another version", `"version": 1`, `"version": 2`, "version 2"},
		{"no version", `"version": 1,`, ``, "version 0"},
		{"an unknown field", `"version": 1`, `"version": 1, "more": 0`, "more"},
		{"a missing field", `"requestsPerSecond": 12.5`, `"requestsPerSecond": 12.5}, {"atNanos": 1000000001`, "missing"},
		{"a misspelled field", `"lastID"`, `"lastid"`, "misspelled"},
		{"null", `"id": 3`, `"id": null`, "null"},
		{"a residency of no instance", `"Shared"`, `"Cold"`, "residency"},
		{"an unknown residency", `"Shared"`, `"shared"`, "residency"},
		{"an ID that was never given", `"lastID": 7`, `"lastID": 5`, "instances"},
		{"samples out of order", `"atNanos": 1000000000`, `"atNanos": 3000000000`, "samples"},
		{"no throughput", `"requestsPerSecond": 40.5`, `"requestsPerSecond": 0`, "throughput"},
		{"a half", `"version": 1,`, `"version": 1, {`, "invalid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := strings.Replace(string(golden), c.old, c.new, 1)
			if text == string(golden) {
				t.Fatal("nothing was changed")
			}
			read := storedState()
			if err := json.Unmarshal([]byte(text), &read); err == nil || !strings.Contains(err.Error(), c.message) {
				t.Errorf("%v, want an error with %q", err, c.message)
			}
			if !reflect.DeepEqual(read, storedState()) {
				t.Errorf("changed to %+v", read)
			}
		})
	}
	if text, err := json.Marshal(State{Instances: []Instance{{ID: 1}}}); err == nil {
		t.Errorf("a state that is not valid is written as %s", text)
	}
}

// Another process decides as the one that was stopped would have.
func TestStateIsTakenOver(t *testing.T) {
	first, second := start(t, Policy{}), start(t, Policy{})
	changes := 0
	for at, load := range []Rate{5, 45, 45, 5, 0} {
		for tick := range 35 {
			text, err := json.Marshal(first.state)
			if err != nil {
				t.Fatal(err)
			}
			second.state, second.now = State{}, first.now
			if err := json.Unmarshal(text, &second.state); err != nil {
				t.Fatal(err)
			}
			a, b := first.load(load, 1), second.load(load, 1)
			changes += len(a)
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("load %d, second %d: %v, then %v", at, tick, a, b)
			}
		}
	}
	if changes < 5 {
		t.Errorf("only %d changes", changes)
	}
}
