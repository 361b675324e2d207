package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// TestLongMessages checks that texts of users, which the API server repeats in its errors, do not make a status too long to be written: its schema
// allows 32768 characters.
func TestLongMessages(t *testing.T) {
	long := strings.Repeat("é", 40_000)
	s := statusOf(api.GPUFunctionStatus{}, known{}, &fleet.Status{Reason: "Failing", Message: long}, backOff{long}, "")
	for _, c := range s.Conditions {
		if len(c.Message) > 32768 || !strings.HasPrefix(c.Message, "éé") || !strings.HasSuffix(c.Message, "é…") {
			t.Errorf("%s has a message of %d bytes, which ends with %q", c.Type, len(c.Message), c.Message[len(c.Message)-10:])
		}
	}
}

// TestStatusHost: the status names the function that the fleet currently lets requests go to, without delay, and keeps the planner's field.
func TestStatusHost(t *testing.T) {
	host := gateway.FunctionName{Namespace: "default", Name: "host"}
	for name, test := range map[string]struct {
		before string
		state  *fleet.Status
		want   string
	}{
		"begins":            {"", &fleet.Status{Host: host}, "host"},
		"ends":              {"host", &fleet.Status{}, ""},
		"goes on":           {"host", &fleet.Status{Host: host}, "host"},
		"no state is known": {"host", nil, "host"},
	} {
		t.Run(name, func(t *testing.T) {
			before := api.GPUFunctionStatus{ServedBy: "wanted", Host: test.before}
			now := statusOf(before, known{}, test.state, backOff{}, "")
			if now.Host != test.want || now.ServedBy != "wanted" || (test.before != test.want) && due(&before, &now) != atOnce {
				t.Errorf("host %q, served by %q, due %v", now.Host, now.ServedBy, due(&before, &now))
			}
		})
	}
}

// TestStatusInputs: each part of the state that a status shows without delay is one of its inputs. Changes of a part that is not an input would not be
// written.
func TestStatusInputs(t *testing.T) {
	name := gateway.FunctionName{Namespace: "ml", Name: "f"}
	inputs := func(s *fleet.Status) statusInputs {
		return (&period{states: map[gateway.FunctionName]*fleet.Status{name: s}}).inputsOf(name, known{}, &api.GPUFunction{}, backOff{})
	}
	for part, change := range map[string]func(*fleet.Status){
		"ready":          func(s *fleet.Status) { s.Ready = true },
		"reason":         func(s *fleet.Status) { s.Reason = "Serving" },
		"message":        func(s *fleet.Status) { s.Message = "f-1: no room" },
		"hot":            func(s *fleet.Status) { s.Hot = 1 },
		"shared":         func(s *fleet.Status) { s.Shared = 1 },
		"parked":         func(s *fleet.Status) { s.Warm = 1 },
		"cannot park":    func(s *fleet.Status) { s.CannotPark = "replica f-1 cannot be parked" },
		"ready replicas": func(s *fleet.Status) { s.Replicas = map[string]int{"ready": 1} },
		"share":          func(s *fleet.Status) { s.Share.SMRequest = 100 },
		"host":           func(s *fleet.Status) { s.Host = name },
	} {
		t.Run(part, func(t *testing.T) {
			before, now := &fleet.Status{}, &fleet.Status{}
			change(now)
			if inputs(before) == inputs(now) {
				t.Error("it is not seen")
			}
			a, b := statusOf(api.GPUFunctionStatus{}, known{}, before, backOff{}, ""), statusOf(api.GPUFunctionStatus{}, known{}, now, backOff{}, "")
			if due(&a, &b) != atOnce {
				t.Error("the status does not show it")
			}
		})
	}
}

// writing returns a statusWriter for a cluster with functions f0, f1 and so on. All of these except the first without ones already have their final
// status, apart from what requests observed.
func writing(t *testing.T, functions, without int) (*cluster, *statusWriter) {
	t.Helper()
	var objects []client.Object
	all := map[gateway.FunctionName]known{}
	for n := range functions {
		f := function(t, func(f *api.GPUFunction) { f.Name = fmt.Sprintf("f%d", n) })
		all[gateway.FunctionName{Namespace: f.Namespace, Name: f.Name}] = known{}
		objects = append(objects, f)
	}
	c := newCluster(t, objects...)
	t.Cleanup(c.pods.queue.ShutDown)
	c.known.known = all
	for _, o := range objects {
		f := o.(*api.GPUFunction)
		f.Spec.Scaling.MinReplicas = 0
		if err := c.known.fleet.Set(f); err != nil {
			t.Fatal(err)
		}
	}
	for n, state := range c.known.fleet.Status() {
		if n < without {
			continue
		}
		f := objects[n].(*api.GPUFunction)
		f.Status = statusOf(f.Status, known{}, &state, backOff{}, "")
		f.Status.Observed.P99 = "1ms"
		if err := c.client.Status().Update(t.Context(), f); err != nil {
			t.Fatal(err)
		}
	}
	listed := func() map[gateway.FunctionName]*api.GPUFunction {
		list := &api.GPUFunctionList{}
		if err := c.client.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		watched := &functionObjects{}
		for at := range list.Items {
			watched.handler().OnAdd(&list.Items[at], false)
		}
		return watched.all()
	}
	return c, &statusWriter{
		client: c.client, objects: listed, fleet: c.known.fleet, advisor: c.known.advisor, functions: c.known, gateways: c.known.gateways, log: slog.New(slog.DiscardHandler),
		written: map[gateway.FunctionName]time.Time{}, settled: map[gateway.FunctionName]statusInputs{}, failed: map[gateway.FunctionName]pause{},
	}
}

// TestFailedStatuses: functions whose statuses the API server refuses do not take the writes of others, and are tried again with longer and longer pauses.
func TestFailedStatuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, w := writing(t, maxWrites+1, maxWrites+1)
		sound := fmt.Sprintf("f%d", maxWrites)
		refused, tries := true, map[string]int{}
		w.client = interceptor.NewClient(c.client, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, server client.Client, sub string, o client.Object, p client.Patch, options ...client.SubResourcePatchOption) error {
				tries[o.GetName()]++
				if refused && o.GetName() != sound {
					return apierrors.NewRequestEntityTooLargeError("it is too large")
				}
				return server.SubResource(sub).Patch(ctx, o, p, options...)
			},
		})
		for range 2 {
			w.writeAll(t.Context())
			time.Sleep(statusPeriod)
		}
		if tries[sound] == 0 {
			t.Error("the status that can be written waits behind those that cannot")
		}
		for range 60 {
			w.writeAll(t.Context())
			time.Sleep(statusPeriod)
		}
		if n := tries["f0"]; n < 2 || n > 8 {
			t.Errorf("a status that cannot be written was tried %d times in a minute", n)
		}
		refused = false
		for range int(failedPauseMax/statusPeriod) + 3 {
			w.writeAll(t.Context())
			time.Sleep(statusPeriod)
		}
		if left := w.look(); len(left) != 0 || len(w.failed) != 0 {
			t.Errorf("%d statuses are left to be written, %d have failed", len(left), len(w.failed))
		}
	})
}

// TestUrgentFirst has far more objects to write for what requests saw than one period allows, and few that are urgent.
func TestUrgentFirst(t *testing.T) {
	c, w := writing(t, 3*maxObserved, 3)
	gone := gateway.FunctionName{Namespace: "ml", Name: "gone"}
	w.written[gone], w.settled[gone], w.turn = time.Now(), statusInputs{}, []gateway.FunctionName{gone}
	w.writeAll(t.Context())
	for n := range 3 {
		f := &api.GPUFunction{}
		if err := c.client.Get(t.Context(), client.ObjectKey{Namespace: "ml", Name: fmt.Sprintf("f%d", n)}, f); err != nil {
			t.Fatal(err)
		}
		if meta.FindStatusCondition(f.Status.Conditions, api.ConditionReady) == nil {
			t.Errorf("%s waits behind what is not urgent", f.Name)
		}
	}
	if _, left := w.written[gone]; left || len(w.written) != 3+maxObserved {
		t.Errorf("%d functions were written, want the urgent ones and %d, and none that is gone", len(w.written), maxObserved)
	}
	if len(w.turn) != 3*maxObserved || slices.Contains(w.turn, gone) {
		t.Errorf("%d functions take turns, want each once, and none that is gone", len(w.turn))
	}
}

// TestStatusesInTurn: if requests change the status of more functions than a period has room for, each is written once before any is written twice, and
// only then is nothing left. Urgent statuses never exceed a period's room, and none is lost.
func TestStatusesInTurn(t *testing.T) {
	for name, test := range map[string]struct{ without, each int }{"observed": {0, maxObserved}, "urgent": {3*maxWrites + 1, maxWrites}} {
		t.Run(name, func(t *testing.T) {
			functions := 3*test.each + 1
			_, w := writing(t, functions, test.without)
			for period := range 3 {
				w.writeAll(t.Context())
				if len(w.written) != (period+1)*test.each {
					t.Fatalf("after %d periods %d functions were written, want %d more in each", period+1, len(w.written), test.each)
				}
			}
			w.writeAll(t.Context())
			if len(w.written) != functions {
				t.Errorf("%d of %d functions were written", len(w.written), functions)
			}
			if left := w.look(); len(left) != 0 {
				t.Errorf("%d are to be written again, though nothing has changed", len(left))
			}
		})
	}
}

// TestStatusChangedByOthers: a status that somebody else has changed is written again.
func TestStatusChangedByOthers(t *testing.T) {
	c, w := writing(t, 1, 0)
	w.writeAll(t.Context())
	if left := w.look(); len(left) != 0 {
		t.Fatalf("%d statuses are to be written, though nothing has changed", len(left))
	}
	f := &api.GPUFunction{}
	if err := c.client.Get(t.Context(), client.ObjectKey{Namespace: "ml", Name: "f0"}, f); err != nil {
		t.Fatal(err)
	}
	f.Status.Replicas = 7
	if err := c.client.Status().Update(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	if left := w.look(); len(left) != 1 || left[0].status.Replicas != 0 {
		t.Errorf("%d statuses are to be written, want that of the function without replicas", len(left))
	}
}

func TestDiffers(t *testing.T) {
	before := api.Observed{RequestsPerSecond: "250", P99: "61ms", Hit: "99.4%"}
	for name, test := range map[string]struct {
		change func(*api.Observed)
		want   bool
	}{
		"nothing":            {func(*api.Observed) {}, false},
		"a little of all":    {func(o *api.Observed) { *o = api.Observed{RequestsPerSecond: "260", P99: "58ms", Hit: "99.1%"} }, false},
		"rate":               {func(o *api.Observed) { o.RequestsPerSecond = "280" }, true},
		"no requests":        {func(o *api.Observed) { o.RequestsPerSecond = "0" }, true},
		"latency":            {func(o *api.Observed) { o.P99 = "54ms" }, true},
		"another unit":       {func(o *api.Observed) { o.P99 = "61000us" }, false},
		"no latency":         {func(o *api.Observed) { o.P99 = "" }, true},
		"half a point":       {func(o *api.Observed) { o.Hit = "98.9%" }, true},
		"none in time":       {func(o *api.Observed) { o.Hit = "0%" }, true},
		"none to be in time": {func(o *api.Observed) { o.Hit = "" }, true},
		"no number":          {func(o *api.Observed) { o.RequestsPerSecond = "many" }, true},
		"no duration":        {func(o *api.Observed) { o.P99 = "long" }, true},
		"no percentage":      {func(o *api.Observed) { o.Hit = "NaN" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := before
			test.change(&now)
			if differs(before, now) != test.want || differs(now, before) != test.want {
				t.Errorf("%v and %v differ: want %t", before, now, test.want)
			}
		})
	}
	if differs(api.Observed{}, api.Observed{RequestsPerSecond: "0"}) {
		t.Error("no requests differ from none")
	}
}
