// Package soak_test measures gshare-controller with many functions: a real API server and etcd, the controller as a separate process, gateways that
// report synthetic load over the real protocol, and hollow nodes, whose pods merely report that they run.
package soak_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/controlplane"
)

// The size of a run. The short run, with the defaults, tests the measurement and what the controller writes. The limits of processor time and memory
// are meaningful only with many functions.
var (
	functionCount = flag.Int("functions", 40, "number of functions, each with 3 replicas on average; 10,000 are the ones that the limits are for")
	lasts         = flag.Duration("for", 8*time.Second, "how long to measure, once all pods are Ready")
	changes       = flag.Float64("changes", 0.05, "part of the functions whose load rises or falls by that of one replica, each minute")
	store         = flag.String("store", "", "file for the result, as JSON")
	program       = flag.String("controller", "", "the gshare-controller to measure, for instance of another commit, with --pprof; by default it is built")
	elect         = flag.Bool("leader-elect", true, "let the controller hold the lease, as in a cluster, if there are many functions; it ends where the machine is too busy to renew it within 3 s")
	profiles      = flag.String("profiles", "", "folder for profiles of the controller: the processor over the last 30 s, and the heap")
)

// many is the number of functions from which on the limits of processor time apply.
const many = 1000

// TestSoak checks the controller against the limits that its design sets: half a second of one core each second for the loop, 1.5 GiB of memory, no
// growth, and 100 writes per second.
func TestSoak(t *testing.T) {
	if *functionCount < many {
		*changes = max(*changes, 4) // so that some scale within seconds
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour+*lasts)
	defer cancel()
	w := newWorld(ctx, t)
	began := time.Now()
	w.fill(t)
	t.Logf("%d functions, %d pods on %d nodes: all are Ready after %v", *functionCount, w.kubelet.ready(), w.nodes, time.Since(began).Round(time.Second))
	w.rest(t)
	w.gateways.vary(*changes)
	before, _, err := w.writes.state()
	if err != nil {
		t.Fatal(err)
	}
	r := w.measure(t)
	created, deleted := r.pods()
	for began := time.Now(); *functionCount < many && (created == 0 || deleted == 0) && time.Since(began) < time.Minute; { // the machine is busy
		w.sleep(t, time.Second)
		now, _, err := w.writes.state()
		if err != nil {
			t.Fatal(err)
		}
		created, deleted = now["create pods"]-before["create pods"], now["delete pods"]-before["delete pods"]
	}
	if created == 0 || deleted == 0 {
		t.Errorf("%d pods were created and %d deleted while the load changed: want some", created, deleted)
	}
	t.Logf("\n%s", r.table())
	t.Logf("writes by kind:\n%s", r.kinds())
	for _, v := range r.verdicts() {
		text := fmt.Sprintf("%-40s %12s, limit %s", v.what, v.measured, v.limit)
		switch {
		case !v.holds && (v.always || *functionCount >= many):
			t.Errorf("FAIL %s", text)
		case v.known:
			t.Logf("ok   %s", text)
		default:
			t.Logf("?    %s: the run is too short", text)
		}
	}
	if *store != "" {
		if err := r.store(*store); err != nil {
			t.Error(err)
		}
	}
}

// rest waits until the controller has written what results from the start: the status of functions and FaSTPods.
func (w *world) rest(t *testing.T) {
	t.Helper()
	if *functionCount < many {
		return
	}
	quiet := w.writes.total()
	for began := time.Now(); ; {
		w.sleep(t, 5*time.Second)
		now := w.writes.total()
		if rate := float64(now-quiet) / 5; rate < 40 || time.Since(began) > time.Minute+time.Duration(*functionCount)*50*time.Millisecond {
			t.Logf("after %v of rest it writes %.0f times a second", time.Since(began).Round(time.Second), rate)
			return
		}
		quiet = now
	}
}

// sleep waits, and fails the test if the controller or the API server ends.
func (w *world) sleep(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-w.ctx.Done():
		t.Fatal(w.ctx.Err())
	case err := <-w.controller.ended:
		t.Fatalf("the controller has ended: %v\n%s", err, w.controller.tail())
	case <-w.plane.APIServer.Done():
		t.Fatal(w.plane.APIServer.Err())
	}
}

// world is everything that runs in a test.
type world struct {
	ctx        context.Context
	plane      *controlplane.ControlPlane
	clients    clients
	nodes      int
	kubelet    *kubelet
	gateways   *gateways
	controller *process
	writes     *writes
}
