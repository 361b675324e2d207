package fleet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// steps records the steps of moves.
type steps struct{ all []string }

func (s *steps) of(f *Fleet) {
	f.moved = func(_ *api.GPUFunction, step MoveStep) {
		s.all = append(s.all, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", step.Kind, step.From, step.To, step.Why)))
	}
}

// TestMove: a replica serves until its replacement is ready, and no request is lost. There is at most one additional replica.
func TestMove(t *testing.T) {
	var s steps
	startObject(t, decode(t, "minReplicas: 2, maxReplicas: 2, requestsPerSecond: 20", nil), steady, s.of, func(w *world) {
		sleep(5 * second)
		failed := make(chan int)
		go func() { failed <- w.load(20, 20*second, 90*ms) }()
		sleep(second)
		all, moving := w.fleet.Movable()
		if len(all) != 2 || len(moving) > 0 || all[0].Instance != "f-1" || all[0].Function.Name != "f" {
			w.Fatalf("%+v can be moved, %v are", all, moving)
		}
		if !w.fleet.Move("f-1", "3g.40gb") {
			w.Fatal("it is not moved")
		}
		for _, again := range []string{"f-1", "f-2", "f-3", "f-9"} {
			if w.fleet.Move(again, "3g.40gb") {
				w.Errorf("%s is moved at the same time", again)
			}
		}
		sleep(2 * second)
		if all, moving := w.fleet.Movable(); len(all) > 0 || !slices.Equal(moving, []string{"f-3"}) {
			w.Errorf("%+v can be moved, %v are", all, moving)
		}
		if got := w.names(); !slices.Equal(got, []string{"f-1", "f-2", "f-3"}) {
			w.Errorf("%v run", got)
		}
		if i := w.as[2]; i.Move != (Move{From: 1, Profile: "3g.40gb"}) || i.Residency != scaling.Hot {
			w.Errorf("%+v was created", i)
		}
		sleep(9 * second)
		all, moving = w.fleet.Movable()
		if len(all) != 2 || len(moving) > 0 || all[1].Instance != "f-3" || all[1].Rate < 9 || all[1].Rate > 11 {
			w.Errorf("%+v can be moved, %v are", all, moving)
		}
		if n := <-failed; n > 0 || w.brokenRequests() > 0 || w.mostAtOnce() != 3 {
			w.Errorf("%d requests failed, %d were with a replica that had to end, %d ran at once", n, w.brokenRequests(), w.mostAtOnce())
		}
		if got := w.names(); !slices.Equal(got, []string{"f-2", "f-3"}) {
			w.Errorf("%v run", got)
		}
		if want := []string{"Moving f-1 f-3", "Moved f-1 f-3"}; !slices.Equal(s.all, want) {
			w.Errorf("steps %q, want %q", s.all, want)
		}
	})
}

// TestMoveInReserve: the replacement of a replica in reserve is in reserve, too. If the replica is needed again meanwhile, the
// replacement is Hot.
func TestMoveInReserve(t *testing.T) {
	for _, needed := range []bool{false, true} {
		t.Run(fmt.Sprintf("needed=%v", needed), func(t *testing.T) {
			start(t, "requestsPerSecond: 10, window: 4s, keepShared: 60s", steady, func(w *world) {
				w.ask(20 * ms)
				sleep(20 * second)
				if s := w.status(); s.Shared != 1 {
					w.Fatalf("%+v", s)
				}
				if !w.fleet.Move("f-1", "3g.40gb") || w.as[1].Residency != scaling.Shared {
					w.Fatalf("created %+v", w.as)
				}
				sleep(second)
				if needed {
					w.load(5, 5*second, 20*ms)
				} else {
					sleep(5 * second)
				}
				if got, s := w.names(), w.status(); !slices.Equal(got, []string{"f-2"}) || s.Shared+s.Hot != 1 || (s.Hot == 1) != needed {
					w.Errorf("%v run: %+v", got, s)
				}
			})
		})
	}
}

// TestMoveFails: if the replacement fails, the replica goes on and the replacement is not created again. After a completed move, the
// replacement is restarted like any other replica.
func TestMoveFails(t *testing.T) {
	var s steps
	lives := []life{{start: second}, {start: time.Hour, dies: 2 * second}, {start: second, dies: 30 * second}, {start: second}}
	startObject(t, decode(t, "minReplicas: 1, maxReplicas: 1, requestsPerSecond: 20", nil), func(n int) life { return lives[n] }, s.of, func(w *world) {
		sleep(5 * second)
		w.fleet.Move("f-1", "3g.40gb")
		sleep(time.Minute)
		if got := w.names(); !slices.Equal(got, []string{"f-1"}) || len(w.creations()) != 2 {
			w.Errorf("%v run, %d were created", got, len(w.creations()))
		}
		if status, took := w.ask(ms); status != 200 || took != ms {
			w.Errorf("status %d after %v", status, took)
		}
		if n := w.status().Failures; n != 1 {
			w.Errorf("%d failures", n)
		}
		w.fleet.Move("f-1", "3g.40gb")
		sleep(10 * second)
		if got := w.names(); !slices.Equal(got, []string{"f-3"}) {
			w.Errorf("%v run", got)
		}
		sleep(30 * second) // it has failed and was created again
		if got := w.names(); !slices.Equal(got, []string{"f-3"}) || len(w.creations()) != 4 || w.as[3].Move != (Move{}) {
			w.Errorf("%v run, %+v were created", got, w.as)
		}
		if want := []string{"Moving f-1 f-2", "Abandoned f-1 f-2 exited with code 7", "Moving f-1 f-3", "Moved f-1 f-3"}; !slices.Equal(s.all, want) {
			w.Errorf("steps %q, want %q", s.all, want)
		}
	})
}

// TestMoveUnneeded: if the load falls during a move so that no replica is needed, both end.
func TestMoveUnneeded(t *testing.T) {
	start(t, "requestsPerSecond: 10, window: 4s, keepShared: 1s", func(n int) life {
		if n == 1 {
			return life{start: time.Hour}
		}
		return life{start: second}
	}, func(w *world) {
		w.ask(ms)
		if !w.fleet.Move("f-1", "3g.40gb") {
			w.Fatal("it is not moved")
		}
		sleep(time.Minute)
		if got := w.names(); len(got) > 0 {
			w.Errorf("%v run", got)
		}
	})
}

// TestMoveOfChangedFunction: a change by the owner is rolled out, and not treated as a move.
func TestMoveOfChangedFunction(t *testing.T) {
	const two = "minReplicas: 1, maxReplicas: 1, requestsPerSecond: 10"
	start(t, two, steady, func(w *world) {
		sleep(5*second + 500*ms)
		w.fleet.Move("f-1", "3g.40gb")
		sleep(second)
		if err := w.fleet.Set(decode(t, two, otherShare)); err != nil {
			t.Fatal(err)
		}
		sleep(20 * second)
		if got := w.names(); !slices.Equal(got, []string{"f-3"}) || w.as[2].Move != (Move{}) || w.as[2].Share.SMRequest != 300 {
			w.Errorf("%v run, %+v was created", got, w.as[2])
		}
		if err := w.fleet.Set(decode(t, two, nil)); err != nil {
			t.Fatal(err)
		}
		if all, _ := w.fleet.Movable(); len(all) > 0 || w.fleet.Move("f-3", "3g.40gb") {
			w.Errorf("%+v can be moved, and are outdated", all)
		}
	})
}

// TestMoveOfPredecessor: the next process continues a move, wherever the previous one stopped.
func TestMoveOfPredecessor(t *testing.T) {
	at := func(id scaling.ID) string { return fmt.Sprintf("f-%d:80", id) }
	const one = "requestsPerSecond: 10, minReplicas: 1, maxReplicas: 1"
	for name, test := range map[string]struct {
		scaling  string
		existing []Existing
		before   []string // ready, and not about to end
		ready    bool     // the replacement becomes ready then
		after    []string
	}{
		"starts":                 {one, []Existing{{ID: 3, Address: at(3)}, {ID: 4, From: 3}}, []string{"f-3", "f-4"}, true, []string{"f-4"}},
		"starts, and fails":      {one, []Existing{{ID: 3, Address: at(3)}, {ID: 4, From: 3}}, []string{"f-3", "f-4"}, false, []string{"f-3"}},
		"ready":                  {one, []Existing{{ID: 3, Address: at(3)}, {ID: 4, From: 3, Address: at(4)}}, []string{"f-4"}, true, []string{"f-4"}},
		"the first one ends":     {one, []Existing{{ID: 3, Address: at(3), Ending: true}, {ID: 4, From: 3, Address: at(4)}}, []string{"f-4"}, true, []string{"f-4"}},
		"the first one is gone":  {one, []Existing{{ID: 4, From: 3, Address: at(4)}}, []string{"f-4"}, true, []string{"f-4"}},
		"gone, and not ready":    {one, []Existing{{ID: 4, From: 3}}, []string{"f-4"}, true, []string{"f-4"}},
		"two claim its place":    {"requestsPerSecond: 10, minReplicas: 2, maxReplicas: 2", []Existing{{ID: 3, Address: at(3)}, {ID: 4, From: 3}, {ID: 5, From: 3}}, []string{"f-3", "f-4", "f-5"}, true, []string{"f-4", "f-5"}},
		"of one that comes late": {"requestsPerSecond: 10, minReplicas: 2, maxReplicas: 2", []Existing{{ID: 3, From: 4, Address: at(3)}, {ID: 4, Address: at(4)}}, []string{"f-3", "f-4"}, true, []string{"f-3", "f-4"}},
		"of itself":              {one, []Existing{{ID: 3, From: 3, Address: at(3)}}, []string{"f-3"}, true, []string{"f-3"}},
	} {
		t.Run(name, func(t *testing.T) {
			restore(t, test.scaling, test.existing, nil, 0, func(r *restored) {
				sleep(3 * second)
				if got := r.names(); !slices.Equal(got, test.before) {
					t.Errorf("%v run, want %v", got, test.before)
				}
				for _, e := range test.existing {
					i := fmt.Sprintf("f-%d", e.ID)
					if !slices.Contains(r.names(), i) || e.Address != "" {
						continue
					}
					kind := Ready
					if !test.ready {
						kind = Restarting
					}
					r.events <- Event{Instance: i, Kind: kind, Address: i + ":80", Message: "exited"}
				}
				sleep(20 * second)
				if got := r.names(); !slices.Equal(got, test.after) || len(r.creations()) > 0 {
					t.Errorf("%v run, %d were created, want %v", got, len(r.creations()), test.after)
				}
			})
		})
	}
}
