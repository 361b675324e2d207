package fleet

import (
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// TestNoRoom: the platform cannot make the first instance Hot, and reports that twice.
func TestNoRoom(t *testing.T) {
	const one = "requestsPerSecond: 10"
	set := func(w *world, share bool) {
		object := decode(w.T, one, nil)
		if share {
			otherShare(object)
		}
		if err := w.fleet.Set(object); err != nil {
			w.Fatal(err)
		}
		sleep(1100 * ms)
	}
	for name, c := range map[string]struct {
		before, after func(w *world)
		fails         bool     // whether the other instance fails
		then, later   []string // instances at once, and after another one has had time to start
		hot, shared   int      // at once
	}{
		"wanted Hot":        {then: []string{"f-1", "f-2"}, later: []string{"f-2"}, hot: 1, shared: 1},
		"replacement fails": {fails: true, then: []string{"f-1", "f-2"}, later: []string{"f-1", "f-2"}, hot: 1, shared: 1},
		"in reserve": {before: func(w *world) {
			w.fleet.locked(func() { w.fleet.functions[0].state.Instances[0].Residency = scaling.Shared })
		}, then: []string{"f-1"}, later: []string{"f-1"}, shared: 1},
		"being replaced": {before: func(w *world) { set(w, true) }, then: []string{"f-1", "f-2"}, later: []string{"f-2"}, hot: 1, shared: 1},
		"kept after all": {before: func(w *world) { set(w, true) }, after: func(w *world) { set(w, false) },
			then: []string{"f-1"}, later: []string{"f-1"}, hot: 1},
	} {
		t.Run(name, func(t *testing.T) {
			start(t, one, func(n int) life {
				if n > 0 && c.fails {
					return life{start: time.Hour}
				}
				return life{start: 5 * second}
			}, func(w *world) {
				check := func(when string, want []string) {
					t.Helper()
					if got := w.names(); !slices.Equal(got, want) {
						t.Errorf("%s %v run, want %v", when, got, want)
					}
					if status, _ := w.ask(ms); status != 200 {
						t.Errorf("%s status %d", when, status)
					}
				}
				w.ask(ms)
				if c.before != nil {
					c.before(w)
				}
				for range 2 {
					w.events <- Event{Instance: "f-1", Kind: NoRoom, Message: "full"}
				}
				sleep(ms)
				if c.after != nil {
					c.after(w)
				}
				check("at first", c.then)
				if s := w.status(); s.Hot != c.hot || s.Shared != c.shared {
					t.Errorf("%d+%d, want %d+%d", s.Hot, s.Shared, c.hot, c.shared)
				}
				sleep(10 * second)
				check("later", c.later)
			})
		})
	}
}
