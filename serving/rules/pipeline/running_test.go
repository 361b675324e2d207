package pipeline

import (
	"testing"
	"time"
)

// onKinds returns the layout of an assignment with the kinds of the slices in place of their IDs.
func onKinds(r *Ranking, a Assignment) Layout {
	l := r.Layout(a)
	for s := range l.Stages {
		for part := range l.Stages[s] {
			l.Stages[s][part].Slice = a.Slices[s][part].Kind.Name
		}
	}
	return l
}

// TestNewRunning: what was assigned and then read again takes as long, and moves as the instance of the whole ranking does.
func TestNewRunning(t *testing.T) {
	branches := Function{Name: "f", Transfer: 5 * ms, Nodes: []Node{
		node("a", 4*gb, 40*ms), node("b", 4*gb, 60*ms, "a"), node("c", 4*gb, 30*ms, "a"), node("d", 4*gb, 50*ms, "b", "c"),
	}}
	for name, f := range map[string]Function{"chain": heavy(), "branches": branches} {
		t.Run(name, func(t *testing.T) {
			r := rank(t, f, kinds)
			d := Demand{SLO: time.Second, Rate: 2}
			all, err := r.Assignments(free(small, small, small, small, medium, medium, middle), d)
			if err != nil {
				t.Fatal(err)
			}
			cuts := 0
			for a := range all {
				got, err := NewRunning(7, f, kinds, onKinds(r, a), d)
				if err != nil {
					t.Fatalf("%v: %v", a, err)
				}
				if g := got.Assignment; g.Latency != a.Latency || g.Bottleneck != a.Bottleneck || g.Transfers != a.Transfers || g.CV != a.CV || g.ComputeSlices() != a.ComputeSlices() {
					t.Errorf("read as %+v, want %+v", g, a)
				}
				want, err := Migrations([]RunningInstance{{7, r, a, d}}, free(large))
				if err != nil {
					t.Fatal(err)
				}
				moves, err := Migrations([]RunningInstance{got}, free(large))
				if err != nil || len(moves) != len(want) || len(moves) > 0 && (moves[0].Instance != 7 || moves[0].To.Latency != want[0].To.Latency || moves[0].Utilisation != want[0].Utilisation) {
					t.Errorf("moves %+v (%v), want %+v", moves, err, want)
				}
				cuts += len(moves)
			}
			if cuts < 2 {
				t.Errorf("the test is void: %d cuts that move", cuts)
			}
		})
	}
}

func TestNewRunningRefuses(t *testing.T) {
	part := func(slice string, nodes ...string) LaidOut { return LaidOut{Nodes: nodes, Slice: slice} }
	d := Demand{SLO: time.Second}
	if _, err := NewRunning(1, heavy(), kinds, Layout{Stages: [][]LaidOut{{part(small.Name, "a")}, {part(medium.Name, "b", "c")}}}, d); err != nil {
		t.Fatal(err)
	}
	for name, stages := range map[string][][]LaidOut{
		"nothing":          nil,
		"a node is away":   {{part(small.Name, "a")}, {part(small.Name, "b")}},
		"one more":         {{part(small.Name, "a")}, {part(medium.Name, "b", "c")}, {part(small.Name, "d")}},
		"twice":            {{part(small.Name, "a")}, {part(medium.Name, "b", "c")}, {part(small.Name, "a")}},
		"empty":            {{part(small.Name, "a")}, {part(medium.Name, "b", "c")}, {part(small.Name)}},
		"backwards":        {{part(medium.Name, "b", "c")}, {part(small.Name, "a")}},
		"beside its input": {{part(small.Name, "a"), part(small.Name, "b")}, {part(small.Name, "c")}},
		"too small":        {{part(small.Name, "a", "b")}, {part(small.Name, "c")}},
		"unknown kind":     {{part("7g.80gb", "a")}, {part(medium.Name, "b", "c")}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewRunning(1, heavy(), kinds, Layout{Stages: stages}, d)
			wantField(t, "layout", err)
		})
	}
	_, err := NewRunning(1, heavy(), kinds, Layout{}, Demand{})
	wantField(t, "slo", err)
	_, err = NewRunning(1, Function{Name: "f"}, kinds, Layout{}, d)
	wantField(t, "nodes", err)
	_, err = NewRunning(1, heavy(), nil, Layout{}, d)
	wantField(t, "kinds", err)
}
