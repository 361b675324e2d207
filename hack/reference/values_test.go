package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValuesOf(t *testing.T) {
	got, err := valuesOf("# All.\na: one # what a is\nb: # groups\n  c: \"\" # what c is\n  d: 2 # what d is\ne: # labels\n  x.dev/y: \"true\"\n  z: 1\nf: {} # files\n")
	want := []value{
		{"a", "one", "what a is"},
		{"b.c", `""`, "what c is"},
		{"b.d", "2", "what d is"},
		{"e", `{x.dev/y: "true", z: 1}`, "labels"},
		{"f", "{}", "files"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(value{})); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	for name, text := range map[string]string{
		"no comment":              "a: 1 # one\nb: 2\n",
		"above, not in the line":  "a: 1 # one\n# two\nb: 2\n",
		"in a group":              "a:\n  b: 1 # one\n  c: 2\n",
		"a map without a comment": "a:\n  b: 1\n",
		"none":                    "{}\n",
		"no YAML":                 "a: [\n",
	} {
		if got, err := valuesOf(text); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
