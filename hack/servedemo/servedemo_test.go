package main

import (
	"slices"
	"strings"
	"testing"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

const trace = "../../lab/dataset/testdata/serving/Azure2021_200.csv.gz"

// TestFunctions: gshare serve takes what the demo has it serve, in each way.
func TestFunctions(t *testing.T) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			read, err := api.Decode([]byte(w.config()))
			if err != nil || len(read) != len(functions) {
				t.Fatalf("%d functions: %v", len(read), err)
			}
			for i, f := range read {
				if f.Name != functions[i].name || f.Spec.Scaling.MinReplicas != w.least || f.Share().IsWhole() != w.whole {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

// TestTrace: a second of the load is a minute of the trace, times the scale.
func TestTrace(t *testing.T) {
	rates, err := readTrace(trace, 12)
	if err != nil {
		t.Fatal(err)
	}
	if want := []float64{32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0}; !slices.Equal(rates[1], want) {
		t.Errorf("the function with bursts has %v, want %v", rates[1], want)
	}
	if _, err := readTrace(trace, 60); err == nil || !strings.Contains(err.Error(), "--seconds 60") {
		t.Errorf("more than the trace has: %v", err)
	}
}

func TestValue(t *testing.T) {
	p := page("x{function=\"a\",namespace=\"default\"} 1.5\nx{function=\"b\",namespace=\"default\"} 2\nxy{function=\"a\",namespace=\"default\",phase=\"ready\"} 3\n")
	for name, found := range map[string][2]float64{
		"a function":         {p.value("x", "a"), 1.5},
		"another":            {p.value("x", "b"), 2},
		"one with a phase":   {p.value("xy", "a", "ready"), 3},
		"one that is absent": {p.value("x", "c"), 0},
	} {
		t.Run(name, func(t *testing.T) {
			if found[0] != found[1] {
				t.Errorf("%v, want %v", found[0], found[1])
			}
		})
	}
}
