package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
)

var resnet = gateway.FunctionName{Namespace: "ml", Name: "resnet50"}

func TestLoads(t *testing.T) {
	load := func(received uint64, waiting int) reported {
		return reported{load: gateway.Load{Received: received, Arrived: received, Waiting: waiting}}
	}
	for name, test := range map[string]struct {
		do   func(l *loads)
		want gateway.Load
	}{
		"none": {func(*loads) {}, gateway.Load{}},
		"two add up": {func(l *loads) {
			l.report("a", "1", resnet, load(3, 1), false)
			l.report("b", "1", resnet, load(4, 2), false)
		}, gateway.Load{Received: 7, Arrived: 7, Waiting: 3}},
		"the last report counts": {func(l *loads) {
			l.report("a", "1", resnet, load(3, 1), false)
			l.report("a", "1", resnet, load(5, 0), false)
		}, gateway.Load{Received: 5, Arrived: 5}},
		"one that starts anew counts from zero": {func(l *loads) {
			l.report("a", "1", resnet, load(3, 1), false)
			l.report("a", "2", resnet, load(1, 0), false)
		}, gateway.Load{Received: 4, Arrived: 4}},
		"one out of reach has no requests": {func(l *loads) {
			l.report("a", "1", resnet, load(3, 1), false)
			l.disconnect("a")
		}, gateway.Load{Received: 3, Arrived: 3}},
		"and counts once when it is back": {func(l *loads) {
			l.report("a", "1", resnet, load(3, 1), false)
			l.disconnect("a")
			l.report("a", "1", resnet, load(4, 1), false)
		}, gateway.Load{Received: 4, Arrived: 4, Waiting: 1}},
		"what a removed one counted remains": {func(l *loads) {
			l.report("a", "1", resnet, load(3, 1), false)
			l.remove("a")
			l.report("b", "1", resnet, load(1, 0), false)
		}, gateway.Load{Received: 4, Arrived: 4}},
		"a forgotten function has none": {func(l *loads) {
			l.report("a", "1", resnet, load(3, 1), false)
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

func TestRecent(t *testing.T) {
	l := newLoads()
	l.report("a", "1", resnet, reported{recent: []uint64{1, 2, 3}}, false)
	l.report("b", "1", resnet, reported{recent: []uint64{10}}, false)
	l.report("a", "1", resnet, reported{load: gateway.Load{Received: 1}}, false) // later reports have none
	if got, want := l.Recent(resnet), []uint64{1, 2, 13}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestWaiting(t *testing.T) {
	l := newLoads()
	l.report("a", "1", resnet, reported{}, false)
	l.report("a", "1", resnet, reported{}, true)
	if got := <-l.waiting; got != resnet {
		t.Errorf("%v waits", got)
	}
	for range 10_000 { // nobody receives
		l.report("a", "1", resnet, reported{}, true)
	}
}

func TestWaitDrained(t *testing.T) {
	drained := reported{drained: map[string]bool{"pod-1": true}}
	for name, test := range map[string]struct {
		then func(l *loads) // after the wait has begun
		done bool
	}{
		"both":                      {func(l *loads) { l.report("a", "1", resnet, drained, false); l.report("b", "1", resnet, drained, false) }, true},
		"one":                       {func(l *loads) { l.report("a", "1", resnet, drained, false) }, false},
		"one, and one out of reach": {func(l *loads) { l.report("a", "1", resnet, drained, false); l.disconnect("b") }, true},
		"one, and one removed":      {func(l *loads) { l.report("a", "1", resnet, drained, false); l.remove("b") }, true},
		"one started anew": {func(l *loads) {
			l.report("a", "1", resnet, drained, false)
			l.report("b", "2", resnet, reported{}, false)
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLoads()
				l.report("a", "1", resnet, reported{}, false)
				l.report("b", "1", resnet, reported{}, false)
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
