package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/report"
)

// one makes a gateway report on a single function.
func one(l *loads, gateway, incarnation string, now reported, waits bool) {
	l.report(gateway, incarnation, []functionReport{{resnet, now, waits}})
}

var resnet = gateway.FunctionName{Namespace: "ml", Name: "resnet50"}

func TestLoads(t *testing.T) {
	load := func(received uint64, waiting int) reported {
		return reported{load: gateway.Load{Received: received, Arrived: received, Waiting: waiting}}
	}
	inSecond := func(received uint64) reported {
		return reported{load: gateway.Load{LastSecond: gateway.LastSecond{Received: received, Known: true}}}
	}
	// connected makes the first report of a gateway that has already counted two requests.
	connected := func(l *loads, gateway string) { one(l, gateway, "1", load(2, 0), false) }
	for name, test := range map[string]struct {
		do   func(l *loads)
		want gateway.Load
	}{
		"none": {func(*loads) {}, gateway.Load{}},
		"what a gateway has counted before does not count": {func(l *loads) { one(l, "a", "1", load(2, 1), false) }, gateway.Load{Waiting: 1}},
		"two add up": {func(l *loads) {
			connected(l, "a")
			connected(l, "b")
			one(l, "a", "1", load(5, 1), false)
			one(l, "b", "1", load(6, 2), false)
		}, gateway.Load{Received: 7, Arrived: 7, Waiting: 3}},
		"the last report counts": {func(l *loads) {
			connected(l, "a")
			one(l, "a", "1", load(5, 1), false)
			one(l, "a", "1", load(7, 0), false)
		}, gateway.Load{Received: 5, Arrived: 5}},
		"a function that is new to a gateway counts from zero": {func(l *loads) {
			l.report("a", "1", nil)
			one(l, "a", "1", load(5, 1), false)
		}, gateway.Load{Received: 5, Arrived: 5, Waiting: 1}},
		"a function that was made again counts from zero": {func(l *loads) {
			connected(l, "a")
			one(l, "a", "1", load(1, 0), false)
		}, gateway.Load{Received: 1, Arrived: 1}},
		"and does not fall when it has as many as before": {func(l *loads) {
			one(l, "a", "1", load(5, 0), false)
			one(l, "a", "1", load(4, 0), false)
			one(l, "a", "1", load(5, 0), false)
		}, gateway.Load{Received: 5, Arrived: 5}},
		"a gateway that restarts continues from its first report": {func(l *loads) {
			connected(l, "a")
			one(l, "a", "1", load(5, 1), false)
			one(l, "a", "2", load(1, 0), false)
			one(l, "a", "2", load(3, 0), false)
		}, gateway.Load{Received: 5, Arrived: 5}},
		"one out of reach has no requests": {func(l *loads) {
			connected(l, "a")
			one(l, "a", "1", load(5, 1), false)
			l.disconnect("a")
		}, gateway.Load{Received: 3, Arrived: 3}},
		"and counts once when it is back": {func(l *loads) {
			connected(l, "a")
			one(l, "a", "1", load(5, 1), false)
			l.disconnect("a")
			one(l, "a", "1", load(6, 1), false)
		}, gateway.Load{Received: 4, Arrived: 4, Waiting: 1}},
		"what a removed one counted remains": {func(l *loads) {
			connected(l, "a")
			one(l, "a", "1", load(5, 1), false)
			l.remove("a")
			connected(l, "b")
			one(l, "b", "1", load(3, 0), false)
		}, gateway.Load{Received: 4, Arrived: 4}},
		"seconds add up": {func(l *loads) {
			one(l, "a", "1", inSecond(5), false)
			one(l, "b", "1", inSecond(3), false)
		}, gateway.Load{LastSecond: gateway.LastSecond{Received: 8, Known: true}}},
		"not those of a gateway out of reach": {func(l *loads) {
			one(l, "a", "1", inSecond(5), false)
			one(l, "b", "1", inSecond(3), false)
			l.disconnect("a")
		}, gateway.Load{LastSecond: gateway.LastSecond{Received: 3, Known: true}}},
		"nor of one that has ended": {func(l *loads) {
			one(l, "a", "1", inSecond(5), false)
			l.remove("a")
		}, gateway.Load{}},
		"not known while a gateway does not count them": {func(l *loads) {
			one(l, "a", "1", inSecond(5), false)
			one(l, "b", "1", load(2, 0), false)
		}, gateway.Load{}},
		"known beside a gateway that does not have the function": {func(l *loads) {
			one(l, "a", "1", inSecond(5), false)
			l.report("b", "1", nil)
		}, gateway.Load{LastSecond: gateway.LastSecond{Received: 5, Known: true}}},
		"a forgotten function has none": {func(l *loads) {
			connected(l, "a")
			one(l, "a", "1", load(5, 1), false)
			l.disconnect("a")
			l.forget(resnet)
		}, gateway.Load{}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLoads()
			test.do(l)
			if got := l.Load(resnet); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

func TestForgetLeavesNothing(t *testing.T) {
	l := newLoads()
	one(l, "a", "1", reported{load: gateway.Load{Arrived: 1}}, false)
	l.forget(resnet)
	if r := l.gateways["a"]; len(r.base)+len(r.functions)+len(l.past) != 0 {
		t.Errorf("%v, %v, %v are left", r.base, r.functions, l.past)
	}
}

// TestRecent: the seconds before the gateways' first reports add up for the next two minutes. Later they are not taken for those before the present.
func TestRecent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoads()
		one(l, "a", "1", reported{recent: []uint64{1, 2, 3}}, false)
		for _, step := range []struct {
			after  time.Duration
			report reported // of another gateway
			want   []uint64
		}{
			{0, reported{recent: []uint64{10}}, []uint64{1, 2, 13}},
			{10 * time.Second, reported{load: gateway.Load{Received: 1}}, []uint64{1, 2, 13}}, // later reports have none
			{2 * time.Minute, reported{load: gateway.Load{Received: 2}}, nil},
			{6 * time.Hour, reported{recent: []uint64{20, 30}}, []uint64{20, 30}}, // it has connected again
		} {
			time.Sleep(step.after)
			one(l, "b", "1", step.report, false)
			if got := l.Recent(resnet); !slices.Equal(got, step.want) {
				t.Errorf("%v, want %v", got, step.want)
			}
		}
	})
}

func TestSettled(t *testing.T) {
	l := newLoads()
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"nothing is known", func() {}, false},
		{"there are two", func() { l.expect([]string{"a", "b"}) }, false},
		{"one has reported", func() { l.report("a", "1", nil) }, false},
		{"one that nobody expects", func() { l.report("c", "1", nil) }, false},
		{"and one cannot be reached", func() { l.disconnect("b") }, true},
		{"which does not change", func() { l.expect([]string{"b", "a"}) }, true},
		{"there is a third", func() { l.expect([]string{"a", "b", "c"}) }, false},
		{"there is none", func() { l.expect(nil) }, true},
	} {
		step.do()
		if l.settled() != step.want {
			t.Errorf("%s: settled %t, want %t", step.what, !step.want, step.want)
		}
	}
}

func TestWaiting(t *testing.T) {
	l := newLoads()
	one(l, "a", "1", reported{}, false)
	one(l, "a", "1", reported{}, true)
	if got := <-l.waiting; got != resnet {
		t.Errorf("%v waits", got)
	}
	for range 10_000 { // nobody receives
		one(l, "a", "1", reported{}, true)
	}
}

// TestWaitStopped: a pod is parked only once every connected gateway has reported that it knows the current wish to park it, and has no requests
// at the pod.
func TestWaitStopped(t *testing.T) {
	saw := func(seq int64) reported {
		return reported{drained: map[string]bool{"pod-1": true, report.Stopped("pod-1", seq): true}}
	}
	for name, test := range map[string]struct {
		then func(l *loads) // called after the wait has begun
		done bool
	}{
		"both":                      {func(l *loads) { one(l, "a", "1", saw(3), false); one(l, "b", "1", saw(3), false) }, true},
		"one has seen an older one": {func(l *loads) { one(l, "a", "1", saw(3), false); one(l, "b", "1", saw(2), false) }, false},
		"one says no number": {func(l *loads) {
			one(l, "a", "1", saw(3), false)
			one(l, "b", "1", reported{drained: map[string]bool{"pod-1": true}}, false)
		}, false},
		"one, and one out of reach": {func(l *loads) { one(l, "a", "1", saw(3), false); l.disconnect("b") }, false},
		"one, and one gone":         {func(l *loads) { one(l, "a", "1", saw(3), false); l.remove("b"); l.expect([]string{"a"}) }, true},
		"a third one comes": {func(l *loads) {
			one(l, "a", "1", saw(3), false)
			l.expect([]string{"a", "b", "c"})
			one(l, "b", "1", saw(3), false)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLoads()
				l.expect([]string{"a", "b"})
				one(l, "a", "1", reported{}, false)
				one(l, "b", "1", reported{}, false)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				result := make(chan error, 1)
				go func() { result <- l.waitStopped(ctx, resnet, "pod-1", 3) }()
				synctest.Wait()
				test.then(l)
				if err := <-result; (err == nil) != test.done || err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v, stopped %t expected", err, test.done)
				}
			})
		})
	}
	l := newLoads()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.waitStopped(ctx, resnet, "pod-1", 3); err == nil {
		t.Error("it is not known which gateways there are")
	}
}

// TestIsBusy: a pod is busy while a connected gateway says so.
func TestIsBusy(t *testing.T) {
	l := newLoads()
	one(l, "a", "1", reported{}, false)
	one(l, "b", "1", reported{busy: []string{"pod-1"}}, false)
	if !l.isBusy(resnet, "pod-1") || l.isBusy(resnet, "pod-2") {
		t.Error("pod-1 alone is busy")
	}
	if l.disconnect("b"); l.isBusy(resnet, "pod-1") {
		t.Error("pod-1 is busy after its gateway has gone")
	}
}

func TestWaitDrained(t *testing.T) {
	drained := reported{drained: map[string]bool{"pod-1": true}}
	for name, test := range map[string]struct {
		then func(l *loads) // called after the wait has begun
		done bool
	}{
		"both":                      {func(l *loads) { one(l, "a", "1", drained, false); one(l, "b", "1", drained, false) }, true},
		"one":                       {func(l *loads) { one(l, "a", "1", drained, false) }, false},
		"one, and one out of reach": {func(l *loads) { one(l, "a", "1", drained, false); l.disconnect("b") }, true},
		"one, and one removed":      {func(l *loads) { one(l, "a", "1", drained, false); l.remove("b") }, true},
		"one has restarted": {func(l *loads) {
			one(l, "a", "1", drained, false)
			one(l, "b", "2", reported{}, false)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLoads()
				one(l, "a", "1", reported{}, false)
				one(l, "b", "1", reported{}, false)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				result := make(chan error, 1)
				go func() { result <- l.waitDrained(ctx, resnet, "pod-1") }()
				synctest.Wait()
				test.then(l)
				if err := <-result; (err == nil) != test.done || err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v, drained %t expected", err, test.done)
				}
			})
		})
	}
}
