package kube

import (
	"testing"
	"time"
)

// TestWork: a count is taken once WorkPeriod has passed, a minute of them is kept, and what was first and last done stays known.
func TestWork(t *testing.T) {
	begin := time.Unix(1e9, 0)
	var w *Work
	launches := uint64(0)
	for second := range 200 {
		if second >= 20 && second < 150 {
			launches += 3
		}
		before := w
		next, due := w.Counted(begin.Add(time.Duration(second)*time.Second), time.Duration(second)*time.Millisecond, launches)
		if due != (second%5 == 0) || !due && next != before {
			t.Fatalf("after %d s: due %t", second, due)
		}
		if w = next; !w.Valid() {
			t.Fatalf("after %d s: %+v is not valid", second, w)
		}
	}
	if len(w.Counts) != WorkKept || w.Counts[WorkKept-1].At != 195_000 || w.Counts[0].At != 135_000 || w.Counts[0].Busy != 135 {
		t.Errorf("counts %+v", w.Counts)
	}
	if w.First == nil || w.First.At != 20_000 || w.First.Launches != 3 || w.Changed != 150_000 {
		t.Errorf("first %+v, changed %d", w.First, w.Changed)
	}
}

// TestForgedWork: counts that no agent writes are not valid.
func TestForgedWork(t *testing.T) {
	for name, w := range map[string]Work{
		"none":              {},
		"too many":          {Counts: make([]WorkCount, WorkKept+1)},
		"negative time":     {Counts: []WorkCount{{At: -1}}},
		"negative use":      {Counts: []WorkCount{{Busy: -1}}},
		"the same time":     {Counts: []WorkCount{{At: 5}, {At: 5, Launches: 1}}},
		"time goes back":    {Counts: []WorkCount{{At: 5}, {At: 4}}},
		"launches go back":  {Counts: []WorkCount{{Launches: 5}, {At: 4, Launches: 4}}},
		"use goes back":     {Counts: []WorkCount{{Busy: 5}, {At: 4, Busy: 4}}},
		"launched later":    {Counts: []WorkCount{{At: 5}}, First: &WorkCount{At: 6}},
		"changed later":     {Counts: []WorkCount{{At: 5}}, Changed: 6},
		"too many launches": {Counts: []WorkCount{{Launches: 1 << 63}}},
		"too long":          {Counts: []WorkCount{{At: 1 << 62}}},
	} {
		t.Run(name, func(t *testing.T) {
			if w.Valid() {
				t.Errorf("%+v is valid", w)
			}
		})
	}
	if w := (Work{Counts: []WorkCount{{}, {At: 5, Busy: 9, Launches: 1}}, First: &WorkCount{At: 5, Launches: 1}, Changed: 5}); !w.Valid() {
		t.Errorf("%+v is not valid", w)
	}
}
