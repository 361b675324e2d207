package serving

import (
	"errors"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// inTurns returns the input of two functions with replicas on these slices, which answer a request in 100 ms.
func inTurns(slo time.Duration, slices [2]string, arrivals ...arrival.Arrival) *Input {
	in := &Input{Until: 2 * time.Minute, Arrivals: arrivals}
	for i, slice := range slices {
		in.Functions = append(in.Functions, Function{Name: string(rune('a' + i)), SLO: slo, Turns: &Turns{Slice: slice, Takes: 100 * ms, Begins: []time.Duration{2 * time.Second}, Leaves: []time.Duration{500 * ms}}})
	}
	return in
}

// every returns requests to function a in each tenth of a second, in which one is answered, and one to function b.
func every(until, b time.Duration) (all []arrival.Arrival) {
	for at := time.Duration(0); at < until; at += 100 * ms {
		if at == b {
			all = append(all, arrival.Arrival{At: at, Function: 1})
		}
		all = append(all, arrival.Arrival{At: at})
	}
	return all
}

func withBegins(in *Input, begins ...time.Duration) *Input {
	for i := range in.Functions {
		in.Functions[i].Turns.Begins = begins
	}
	return in
}

// TestTurns has results that follow by hand from when requests come, and from the bounds of turns.
func TestTurns(t *testing.T) {
	const s = time.Second
	together, apart := [2]string{"s", "s"}, [2]string{"s", "r"}
	a, b := arrival.Arrival{At: 250 * ms}, arrival.Arrival{At: 3250 * ms, Function: 1}
	for name, c := range map[string]struct {
		in      *Input
		turns   int
		refused int
		slowest time.Duration
	}{
		"no request":   {inTurns(s, together), 0, 0, 0},
		"one":          {inTurns(4*s, together, a), 1, 0, 2850 * ms}, // decided at 1 s
		"too late":     {inTurns(2*s, together, a), 1, 1, 0},
		"keeps it":     {inTurns(4*s, together, a, arrival.Arrival{At: 60 * s}), 1, 0, 2850 * ms}, // while no other has requests
		"other one":    {inTurns(4*s, together, a, b), 2, 0, 3850 * ms},                           // leaves after a second at 4 s, begins at 5 s
		"refused":      {inTurns(3*s, together, a, b), 2, 1, 2850 * ms},
		"apart":        {inTurns(4*s, apart, a, b), 2, 0, 2850 * ms},                                                               // of which that of the second is 2.75 s
		"another time": {withBegins(inTurns(30*s, together, a, b), 2*s, 4*s), 2, 0, 3850 * ms},                                     // the first of each
		"next time":    {withBegins(inTurns(30*s, together, a, b, arrival.Arrival{At: 20*s + 250*ms}), 2*s, 4*s), 3, 0, 5850 * ms}, // b leaves at 21 s, a begins at 22 s
		// a answers requests from 3 s to 13 s; b begins at 14 s and has nothing to do from 16.1 s, so that a begins again at 18 s,
		// and answers all that came from 10.1 s on 10 s later.
		"bounded": {inTurns(30*s, together, every(20*s, 4*s)...), 3, 0, 10 * s},
	} {
		t.Run(name, func(t *testing.T) {
			r := run(t, c.in, "turns")
			if r.WarmStarts != c.turns || r.Refused != c.refused || r.Violations != c.refused {
				t.Errorf("%+v, want %d turns and %d refused", r, c.turns, c.refused)
			}
			if slowest := r.P99; slowest != c.slowest {
				t.Errorf("slowest %v, want %v", slowest, c.slowest)
			}
		})
	}
}

func TestTurnsValidate(t *testing.T) {
	for field, change := range map[string]func(*Function){
		"functions[1].turns.slice":  func(f *Function) { f.Turns.Slice = "" },
		"functions[1].turns.takes":  func(f *Function) { f.Turns.Takes = 0 },
		"functions[1].turns.begins": func(f *Function) { f.Turns.Begins = nil },
		"functions[1].turns.leaves": func(f *Function) { f.Turns.Leaves = append(f.Turns.Leaves, 2*time.Hour) },
	} {
		in := inTurns(time.Second, [2]string{"s", "s"})
		change(&in.Functions[1])
		_, err := Run(t.Context(), in, "turns")
		var invalid *share.FieldError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	in := inTurns(time.Second, [2]string{"s", "s"})
	in.Functions[0].Turns = nil
	if _, err := Run(t.Context(), in, "turns"); err == nil {
		t.Error("a function without turns is simulated")
	}
}
