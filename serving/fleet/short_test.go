package fleet

import (
	"testing"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// TestStarting: replicas that start, or have missed a probe only, are going to get requests soon. Those that have failed again, miss their probes for long or
// are not counted, are not.
func TestStarting(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		instance  instance
		residency scaling.Residency
		want      int
	}{
		"starts":              {instance{phase: starting}, scaling.Hot, 1},
		"starts once more":    {instance{phase: starting, failures: 1}, scaling.Hot, 1},
		"starts again, again": {instance{phase: starting, failures: 2}, scaling.Hot, 0},
		"misses a probe":      {instance{phase: starting, readySince: now.Add(-time.Hour), since: now}, scaling.Hot, 1},
		"misses its probes":   {instance{phase: starting, readySince: now.Add(-time.Hour), since: now.Add(-2 * Recovery)}, scaling.Hot, 0},
		"backs off":           {instance{phase: backingOff, failures: 2}, scaling.Hot, 0},
		"wakes":               {instance{phase: ready, Instance: Instance{Residency: scaling.Warm}}, scaling.Hot, 1},
		"is parked":           {instance{phase: ready, Instance: Instance{Residency: scaling.Warm}}, scaling.Warm, 0},
		"is ready":            {instance{phase: ready}, scaling.Shared, 0},
	} {
		t.Run(name, func(t *testing.T) {
			fn := &function{instances: map[scaling.ID]*instance{1: &c.instance, 2: {phase: starting}}} // 2 is not counted
			fn.state.Instances = []scaling.Instance{{ID: 1, Residency: c.residency}}
			if got := fn.work(gateway.Load{}).Starting; got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}

// TestExternalHasNoReserve: the replicas that another autoscaler is told of are all pods, so none is in reserve.
func TestExternalHasNoReserve(t *testing.T) {
	for _, by := range []api.Autoscaler{api.Native, api.External} {
		object := decode(t, "requestsPerSecond: 10", nil)
		object.Spec.Scaling.Autoscaler = by
		if got, want := PolicyOf(object).Reserve, by == api.Native; got != want {
			t.Errorf("%s: %v", by, got)
		}
	}
}

// TestSayWhyNoMore: reasons that change every second are a line a minute.
func TestSayWhyNoMore(t *testing.T) {
	start(t, "requestsPerSecond: 10", steady, func(w *world) {
		fn := w.fleet.functions[0]
		for second := range 90 {
			w.fleet.locked(func() {
				w.fleet.sayWhyNoMore(fn, []string{"one", "another", ""}[second%3], scaling.Load{Rate: scaling.Rate(second % 2)})
			})
			sleep(time.Second)
		}
		if got := w.log.lines("no replica is added"); len(got) != 2 {
			t.Errorf("%q, want 2 lines in 90 s", got)
		}
	})
}

// TestBusySpare: of two replicas in reserve, the one that answers a request is given up last, although it has been in reserve for longer.
func TestBusySpare(t *testing.T) {
	start(t, "requestsPerSecond: 10, minReplicas: 3", steady, func(w *world) {
		sleep(10 * second)
		w.fleet.locked(func() {
			w.fleet.gateways = &oneBusy{w.fleet.gateways, "f-2"}
			for at := range w.fleet.functions[0].state.Instances {
				if i := &w.fleet.functions[0].state.Instances[at]; i.ID > 1 {
					i.Residency, i.Since = scaling.Shared, time.Duration(i.ID)*second
				}
			}
			w.fleet.instances["f-1"].phase, w.fleet.instances["f-1"].queued, w.fleet.instances["f-1"].created = starting, true, time.Now().Add(-time.Minute)
			w.fleet.makeRoom()
		})
		if two, three := w.fleet.instances["f-2"].phase, w.fleet.instances["f-3"].phase; two != ready || three == ready {
			t.Errorf("f-2 is %s, f-3 %s", two, three)
		}
	})
}

type oneBusy struct {
	Gateways
	busy string
}

func (g *oneBusy) IsBusy(_ gateway.FunctionName, replica string) bool { return replica == g.busy }
