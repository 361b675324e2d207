package fleet

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// counter is a load that the test sets.
type counter struct {
	mu   sync.Mutex
	load gateway.Load
}

func (c *counter) get(gateway.FunctionName) gateway.Load {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.load
}

// add adds requests, of which some are still waiting.
func (c *counter) add(requests uint64, waiting int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.load.Arrived, c.load.Received, c.load.Waiting = c.load.Arrived+requests, c.load.Received+requests, waiting
	c.load.Answered = c.load.Received - uint64(waiting)
	c.load.InTime = c.load.Answered
}

// external returns a function that another autoscaler scales, with replicas that answer 10 requests per second each.
func external(t *testing.T) *api.GPUFunction {
	t.Helper()
	f := &api.GPUFunction{Spec: api.GPUFunctionSpec{
		SLO:     api.SLO{Latency: "100ms"},
		Scaling: api.Scaling{Autoscaler: api.External, RequestsPerSecond: 10, Window: "10s", KeepShared: "5s", MaxReplicas: new(8)},
	}}
	f.Name, f.Namespace = "resnet50", "ml"
	complete, err := f.CompleteForCluster(0)
	if err != nil {
		t.Fatal(err)
	}
	return complete
}

func TestAdvisor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := external(t)
		name := gateway.FunctionName{Namespace: f.Namespace, Name: f.Name}
		load := &counter{}
		a := NewAdvisor(load.get, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go a.Run(ctx)
		// pass lets seconds pass with a number of requests in each, which are answered at once.
		pass := func(seconds int, requests uint64) {
			for range seconds {
				load.add(requests, 0)
				time.Sleep(time.Second)
				synctest.Wait()
			}
		}
		expect := func(when string, want int) {
			t.Helper()
			if got, known, _ := a.Wanted(name); got != want || !known {
				t.Errorf("%s: %d replicas, known %v, want %d", when, got, known, want)
			}
		}

		if _, known, _ := a.Wanted(name); known {
			t.Error("a function is known that was not set")
		}
		if err := a.Set(f, nil); err != nil {
			t.Fatal(err)
		}
		expect("without load", 0)
		_, _, changed := a.Wanted(name)
		load.add(1, 1)
		a.Wake(name)
		expect("at the first request", 1)
		select {
		case <-changed:
		default:
			t.Error("nobody was told of the first request")
		}
		pass(20, 35)
		expect("at 35 requests per second", 4)
		pass(20, 1)
		expect("at 1 request per second, with the reserve gone", 1)
		pass(40, 0)
		expect("without load again", 0)

		pass(20, 500)
		expect("with more load than the maximum can bear", 8)
		f.Spec.Scaling.MaxReplicas = new(5)
		if err := a.Set(f, nil); err != nil {
			t.Fatal(err)
		}
		expect("with a lower maximum", 5)
		const metric = "# HELP gshare_fleet_wanted_replicas Replicas that functions need which another autoscaler scales (scaling.autoscaler External).\n" +
			"# TYPE gshare_fleet_wanted_replicas gauge\ngshare_fleet_wanted_replicas{function=\"resnet50\",namespace=\"ml\"} 5\n"
		if err := testutil.CollectAndCompare(a, strings.NewReader(metric)); err != nil {
			t.Error(err)
		}
		_, _, changed = a.Wanted(name)
		a.Remove(name)
		select {
		case <-changed:
		default:
			t.Error("nobody was told that the function is gone")
		}
		if _, known, _ := a.Wanted(name); known {
			t.Error("a function is known that was removed")
		}
	})
}

// TestAdvisorTakesOver: another process has advised on the function before, and its replicas are not given up merely because
// the new process has not seen a full window yet.
func TestAdvisorTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := external(t)
		name := gateway.FunctionName{Namespace: f.Namespace, Name: f.Name}
		load := &counter{load: gateway.Load{Replicas: 4, Arrived: 1000, Received: 1000, Answered: 1000, InTime: 1000}}
		a := NewAdvisor(load.get, slog.New(slog.DiscardHandler))
		received := make([]uint64, 30)
		for i := range received {
			received[i] = 35
		}
		if err := a.Set(f, received); err != nil {
			t.Fatal(err)
		}
		if got, _, _ := a.Wanted(name); got != 4 {
			t.Fatalf("%d replicas before the first second has passed, want the 4 that are there", got)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go a.Run(ctx)
		for range 5 {
			load.add(35, 0)
			time.Sleep(time.Second)
			synctest.Wait()
			if got, _, _ := a.Wanted(name); got != 4 {
				t.Fatalf("%d replicas, want the 4 that are there", got)
			}
		}
	})
}

func TestAdvisorStatus(t *testing.T) {
	for name, test := range map[string]struct {
		load   gateway.Load
		ready  bool
		reason string
	}{
		"no load":      {gateway.Load{}, true, "Idle"},
		"no pod yet":   {gateway.Load{Received: 1, Waiting: 1}, false, "WaitsForAutoscaler"},
		"two replicas": {gateway.Load{Received: 1, Replicas: 2, P99: time.Millisecond}, true, "Serving"},
	} {
		t.Run(name, func(t *testing.T) {
			f, load := external(t), gateway.Load{}
			a := NewAdvisor(func(gateway.FunctionName) gateway.Load { return load }, slog.New(slog.DiscardHandler))
			if err := a.Set(f, nil); err != nil {
				t.Fatal(err)
			}
			load = test.load
			a.Wake(gateway.FunctionName{Namespace: f.Namespace, Name: f.Name})
			all := a.Status()
			if len(all) != 1 {
				t.Fatalf("%d states", len(all))
			}
			if s := all[0]; s.Ready != test.ready || s.Reason != test.reason || s.Hot != test.load.Replicas || s.P99 != test.load.P99 {
				t.Errorf("%+v", s)
			}
		})
	}
}
