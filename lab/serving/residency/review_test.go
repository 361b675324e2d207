package residency

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
)

// newNode has functions a, b, ... of 6 GB that take a second on 1g, and slices of 1g.
func newNode(t *testing.T, p Policy, functions, slices int) *Node {
	t.Helper()
	p.Host = 100 * gb
	n, err := New(p)
	if err != nil {
		t.Fatal(err)
	}
	for i := range functions {
		if err := n.Register(testFunction(string(rune('a'+i)), "t", 6, time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range slices {
		if err := n.AddSlice(0, pipeline.Slice{ID: fmt.Sprint("s", i), Kind: kinds["1g.10gb"]}); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func enqueue(t *testing.T, n *Node, now time.Duration, id uint64, function string, deadline time.Duration) {
	t.Helper()
	if err := n.Enqueue(now, Request{id, function, deadline}); err != nil {
		t.Fatal(err)
	}
}

func advises(n *Node, now time.Duration, a Advice) bool { return slices.Contains(n.Review(now), a) }

// A function is used while it executes, and not while its data are loaded: of 2 s, the first second is the load.
func TestLoadIsNoUse(t *testing.T) {
	n := newNode(t, Policy{Window: 2 * time.Second, Thresholds: pool.Thresholds{Stay: 1}}, 1, 1)
	enqueue(t, n, 0, 1, "a", time.Minute)
	n.Dispatch(0)
	if err := n.Finish(2*time.Second, "s0"); err != nil {
		t.Fatal(err)
	}
	promote := Advice{Action: Promote, Function: "a"}
	if advises(n, 2*time.Second, promote) {
		t.Error("used for half of the time, and to be promoted")
	}
	enqueue(t, n, 2*time.Second, 2, "a", time.Minute)
	n.Dispatch(2 * time.Second)
	if !advises(n, 3*time.Second, promote) { // still running
		t.Error("used all the time, and not to be promoted")
	}
}

// A slice that has been running one long request is no idle slice, though nothing has ended on it.
func TestLongRunKeepsSlices(t *testing.T) {
	n := newNode(t, Policy{}, 1, 2)
	enqueue(t, n, 0, 1, "a", time.Hour)
	n.Dispatch(0)
	if got := n.Review(31 * time.Second); got[0].Action != Promote || len(got) != 1 {
		t.Errorf("half of the slices' time is used: %+v", got)
	}
}

// A slice is advised for a function that no slice can run only while the function has requests.
func TestGrowForAFunction(t *testing.T) {
	n := newNode(t, Policy{}, 1, 0)
	grow := Advice{Action: Grow, Function: "a"}
	for now, want := range map[time.Duration]bool{time.Second: false} {
		if advises(n, now, grow) != want {
			t.Errorf("at %v, before any request: %v", now, !want)
		}
	}
	n.AddDemoted(2*time.Second, "a")
	if !advises(n, 3*time.Second, grow) || advises(n, 33*time.Second, grow) {
		t.Error("a function that is Warm wants a slice for the window, and no longer")
	}
	enqueue(t, n, 100*time.Second, 1, "a", 200*time.Second)
	if !advises(n, 101*time.Second, grow) {
		t.Error("a request waits, and no slice is asked for")
	}
}

// An instance that is on its way out is neither promoted again nor left behind when its slice fails.
func TestLeaving(t *testing.T) {
	n := newNode(t, Policy{Window: 2 * time.Second, Thresholds: pool.Thresholds{Stay: 1}}, 1, 1)
	enqueue(t, n, 0, 1, "a", time.Minute)
	n.Dispatch(0)
	promote := Advice{Action: Promote, Function: "a"}
	if !advises(n, 4*time.Second, promote) {
		t.Fatal("the test is void")
	}
	if left := n.RemovePromoted(5*time.Second, "a"); left != nil || advises(n, 5*time.Second, promote) {
		t.Errorf("returned %v, or promoted twice", left)
	}
	if r, ran := n.LoseSlice(6*time.Second, "s0"); !ran || r.ID != 1 {
		t.Errorf("lost %+v, %v", r, ran)
	}
	if got := n.Review(20 * time.Minute); got != nil {
		t.Errorf("an instance is left: %+v", got)
	}
}
