package pipeline

import (
	"encoding/json"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// built is a build file of a chain, with a node that was measured on more kinds and batches than the other.
const built = `{"version": 1, "function": "faces", "inputs": ["image"], "transferNanoseconds": 2000000, "nodes": [
	{"name": "detect", "memoryBytes": 3221225472, "outputBytes": 100, "takes": ["bytes[9]"], "gives": "list[1]", "times": {
		"1g.10gb": [{"batch": 1, "nanoseconds": 40000000}, {"batch": 4, "nanoseconds": 90000000}], "2g.20gb": [{"batch": 1, "nanoseconds": 20000000}]}},
	{"name": "classify", "after": ["detect"], "chancePerMille": 500, "memoryBytes": 9663676416, "outputBytes": 5, "takes": ["list[1]"], "gives": "str[4]", "times": {
		"1g.10gb": [{"batch": 1, "nanoseconds": 50000000}, {"batch": 2, "nanoseconds": 60000000}, {"batch": 4, "nanoseconds": 80000000}]}}]}`

func TestReadBuild(t *testing.T) {
	b, err := ReadBuild([]byte(built))
	if err != nil {
		t.Fatal(err)
	}
	if got := b.Batches(); !reflect.DeepEqual(got, []int{1, 4}) {
		t.Errorf("batches %v", got)
	}
	for batch, want := range map[int]Function{
		1: {Name: "faces", Transfer: 2 * ms, Nodes: []Node{
			{Name: "detect", Memory: 3 * gb, Times: map[string]time.Duration{"1g.10gb": 40 * ms, "2g.20gb": 20 * ms}},
			{Name: "classify", After: []string{"detect"}, Memory: 9 * gb, Chance: 500, Times: map[string]time.Duration{"1g.10gb": 50 * ms}},
		}},
		4: {Name: "faces", Transfer: 2 * ms, Nodes: []Node{
			{Name: "detect", Memory: 3 * gb, Times: map[string]time.Duration{"1g.10gb": 90 * ms}},
			{Name: "classify", After: []string{"detect"}, Memory: 9 * gb, Chance: 500, Times: map[string]time.Duration{"1g.10gb": 80 * ms}},
		}},
	} {
		if got, err := b.Function(batch); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%d: %+v, %v, want %+v", batch, got, err, want)
		}
	}
	_, err = b.Function(2)
	wantField(t, "batch", err)
}

// TestBuildIsCut: from a build file to what the stages run.
func TestBuildIsCut(t *testing.T) {
	b, err := ReadBuild([]byte(built))
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Function(1)
	if err != nil {
		t.Fatal(err)
	}
	r := rank(t, f, kinds)
	a, err := r.Assign([]Slice{{"MIG-a", small}, {"MIG-b", medium}}, Demand{SLO: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	want := `{"version":1,"function":"faces","stages":[[{"nodes":["detect"],"slice":"MIG-b"}],[{"nodes":["classify"],"slice":"MIG-a"}]]}`
	if got, err := json.Marshal(r.Layout(a)); err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

func TestReadBuildRefuses(t *testing.T) {
	for name, c := range map[string]struct{ field, old, new string }{
		"version":        {"version", `"version": 1`, `"version": 2, "more": true`},
		"inputs":         {"inputs", `["image"]`, `[]`},
		"name":           {"name", `"faces"`, `""`},
		"transfer":       {"transfer", `2000000,`, `-1,`},
		"output":         {"nodes[1].outputBytes", `"outputBytes": 5`, `"outputBytes": -1`},
		"memory":         {"nodes[0].memory", `3221225472`, `0`},
		"unknown node":   {"nodes[1].after", `["detect"]`, `["x"]`},
		"chance":         {"nodes[1].chance", `"chancePerMille": 500`, `"chancePerMille": 1001`},
		"batch":          {"nodes[0].times", `{"batch": 1, "nanoseconds": 4`, `{"batch": 0, "nanoseconds": 4`},
		"batch twice":    {"nodes[0].times", `{"batch": 4, "nanoseconds": 9`, `{"batch": 1, "nanoseconds": 9`},
		"no batch":       {"nodes[0].times", `[{"batch": 1, "nanoseconds": 20000000}]`, `[]`},
		"time":           {"nodes[0].times", `40000000`, `0`},
		"no time at all": {"nodes", `{"batch": 1, "nanoseconds": 50000000}, {"batch": 2, "nanoseconds": 60000000}, {"batch": 4,`, `{"batch": 3,`},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Count(built, c.old) != 1 {
				t.Fatalf("%q is there %d times", c.old, strings.Count(built, c.old))
			}
			_, err := ReadBuild([]byte(strings.Replace(built, c.old, c.new, 1)))
			wantField(t, c.field, err)
		})
	}
	for name, text := range map[string]string{
		"unknown field": strings.Replace(built, `"inputs"`, `"x": 1, "inputs"`, 1),
		"more":          built + "{}",
		"not JSON":      "version: 1",
		"too long":      built + strings.Repeat(" ", maxBuildBytes),
	} {
		if b, err := ReadBuild([]byte(text)); err == nil {
			t.Errorf("%s: %+v", name, b)
		}
	}
}

// FuzzReadBuild: a file that is accepted is a valid function at each of its batches, and reads the same once it is written again.
func FuzzReadBuild(f *testing.F) {
	f.Add([]byte(built))
	f.Add([]byte(strings.Replace(built, `"batch": 4`, `"batch": 2`, 1)))
	f.Add([]byte(`{"version":1,"function":"f","inputs":["x"],"nodes":[{"name":"a","after":["a"],"memoryBytes":1,"times":{"cpu":[{"batch":1,"nanoseconds":1}]}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		b, err := ReadBuild(text)
		if err != nil {
			if len(err.Error()) > 4096 {
				t.Errorf("%d bytes of error", len(err.Error()))
			}
			return
		}
		for _, batch := range b.Batches() {
			function, err := b.Function(batch)
			if err != nil || function.Validate() != nil {
				t.Errorf("batch %d: %v, %v", batch, err, function.Validate())
			}
		}
		again, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		if len(again) > maxBuildBytes {
			return
		}
		second, err := ReadBuild(again)
		if err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if third, err := json.Marshal(second); err != nil || string(third) != string(again) {
			t.Errorf("%s reads as %s, %v", again, third, err)
		}
	})
}

// TestBuildOfPython reads a build file that the Python package has written.
func TestBuildOfPython(t *testing.T) {
	text, err := os.ReadFile("testdata/words.json")
	if err != nil {
		t.Fatal(err)
	}
	b, err := ReadBuild(text)
	if err != nil {
		t.Fatal(err)
	}
	f, err := b.Function(1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Rank(f, []Kind{{"cpu", 1, 10 * gb}}); err != nil {
		t.Error(err)
	}
}
