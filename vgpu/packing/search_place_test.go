package packing

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// load puts residents on a slice of the node.
func load(n *Node, slice int, residents ...Resident) *Node {
	n = n.Clone()
	for _, r := range residents {
		n.Loads[slice].Add(r)
	}
	return n
}

// migNode has two MIG slices on device d0 and one whole GPU.
func migNode() *Node {
	return NewNode("m", []Slice{instanceOf("m0", "d0", "1g.10gb"), instanceOf("m1", "d0", "1g.10gb"), gpu("g0", "A100")}, 64000, 256<<30)
}

func TestPlace(t *testing.T) {
	exclusive := func(slice int) Pick { return Pick{Slice: slice, Class: share.Exclusive} }
	mps := func(slice int) Pick { return Pick{Slice: slice, Class: share.MPS} }
	onMIG := func(p *Pod) *Pod { p.Request.Slice = share.AnyMIG; return p }
	stages := func(p *Pod, kinds ...string) *Pod {
		for c, kind := range kinds {
			p.Request.Containers[c].Slice = kind
		}
		return p
	}
	mixed := NewNode("m", []Slice{instanceOf("m0", "d0", "1g.10gb"), instanceOf("m1", "d0", "3g.40gb"), gpu("g0", "A100")}, 64000, 256<<30)
	half := runs(fixed(50, 100))
	cases := map[string]struct {
		node *Node
		pod  *Pod
		want Plan
	}{
		"no GPU asked":                       {gpuNode("n", 1), podOf(), Plan{}},
		"no GPU asked, none there":           {gpuNode("n", 0), podOf(), Plan{}},
		"the first of equal empty slices":    {gpuNode("n", 4), podOf(fixed(100, 100)), Plan{{exclusive(0)}}},
		"the used slice":                     {load(gpuNode("n", 3), 1, half), podOf(fixed(30, 100)), Plan{{mps(1)}}},
		"the tightest of the used slices":    {load(load(gpuNode("n", 3), 1, half), 2, runs(fixed(70, 100))), podOf(fixed(30, 100)), Plan{{mps(2)}}},
		"an empty slice when no used has it": {load(gpuNode("n", 3), 1, half), podOf(fixed(60, 100)), Plan{{mps(0)}}},
		"two GPUs":                           {gpuNode("n", 4), wide(2, fixed(100, 100)), Plan{{exclusive(0), exclusive(1)}}},
		"two GPUs around a used one": {
			load(gpuNode("n", 3), 1, half), wide(2, fixed(100, 100)), Plan{{exclusive(0), exclusive(2)}}},
		"two containers share a GPU":     {gpuNode("n", 2), podOf(fixed(50, 100), fixed(50, 50)), Plan{{mps(0)}, {mps(0)}}},
		"two containers take turns":      {gpuNode("n", 1), podOf(fixed(80, 50), fixed(80, 50)), Plan{{mps(0)}, {mps(0)}}},
		"two containers, two GPUs":       {gpuNode("n", 2), podOf(fixed(80, 60), fixed(80, 60)), Plan{{mps(0)}, {mps(1)}}},
		"two containers on MIG":          {migNode(), onMIG(podOf(fixed(100, 100), fixed(100, 100))), Plan{{exclusive(0)}, {exclusive(1)}}},
		"each container its own profile": {mixed, stages(podOf(fixed(100, 100), fixed(100, 100)), "3g.40gb", "1g.10gb"), Plan{{exclusive(1)}, {exclusive(0)}}},
		"a profile and a whole GPU":      {mixed, stages(podOf(fixed(100, 100), fixed(100, 100)), "3g.40gb"), Plan{{exclusive(1)}, {exclusive(2)}}},
		"one profile, the other any":     {mixed, stages(onMIG(podOf(fixed(100, 100), fixed(100, 100))), "", "1g.10gb"), Plan{{exclusive(1)}, {exclusive(0)}}},
		"a small one first, then big":    {load(gpuNode("n", 2), 0, half), podOf(fixed(50, 100), fixed(100, 100)), Plan{{mps(0)}, {exclusive(1)}}},
		// The first container would rather go where the second one must go.
		"a step back": {
			load(load(gpuNode("n", 2), 0, runs(fixed(40, 100))), 1, runs(withMemory(fixed(20, 100), 75))),
			podOf(fixed(50, 100), withMemory(fixed(60, 100), 20)), Plan{{mps(1)}, {mps(0)}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			got, _, refusal := bestFit(Slots).Place(c.node, c.pod)
			if refusal != Admitted {
				t.Fatal(refusal)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPlaceRefuses(t *testing.T) {
	onMIG := func(p *Pod) *Pod { p.Request.Slice = share.AnyMIG; return p }
	models := func(p *Pod, m ...string) *Pod { p.Request.Models = m; return p }
	sick := gpuNode("n", 2)
	sick.Slices[1].Healthy = false
	mixed := gpuNode("n", 2)
	mixed.Slices[1].Model = "H200"
	cases := map[string]struct {
		node *Node
		pod  *Pod
		want Refusal
	}{
		"no GPUs":                           {gpuNode("n", 0), podOf(fixed(10, 10)), NoSlices},
		"no GPUs for several":               {gpuNode("n", 0), wide(2, fixed(10, 100)), NoSlices},
		"no MIG slice":                      {gpuNode("n", 2), onMIG(podOf(fixed(10, 10))), WrongKind},
		"too large":                         {gpuNode("n", 2), podOf(withMemory(fixed(10, 10), 81)), TooLarge},
		"too few GPUs":                      {gpuNode("n", 2), wide(3, fixed(10, 100)), TooFewDevices},
		"two slices are one device":         {migNode(), onMIG(wide(2, fixed(10, 100))), WrongKind},
		"only one device":                   {NewNode("m", migNode().Slices[:2], 0, 0), onMIG(wide(2, fixed(10, 100))), TooFewDevices},
		"one is unhealthy":                  {sick, wide(2, fixed(100, 100)), Unhealthy},
		"one is of another model":           {mixed, models(wide(2, fixed(100, 100)), "A100"), WrongModel},
		"one is unhealthy, the other full":  {load(sick, 0, runs(fixed(100, 100))), wide(2, fixed(100, 100)), Unhealthy},
		"one GPU is in use":                 {load(gpuNode("n", 2), 0, runs(fixed(10, 10))), wide(2, fixed(100, 100)), OtherClass},
		"one GPU is full":                   {load(gpuNode("n", 2), 0, runs(fixed(60, 100))), wide(2, fixed(50, 100)), NoSMTime},
		"the most telling of several":       {load(load(gpuNode("n", 2), 0, runs(fixed(100, 100))), 1, as(runs(fixed(10, 10)), func(r *Resident) { r.Tenant = "b" })), podOf(fixed(10, 10)), NoSMTime},
		"each fits, not both":               {gpuNode("n", 1), podOf(fixed(100, 100), fixed(100, 100)), NoJointPlacement},
		"each fits, their memory does not":  {gpuNode("n", 1), podOf(withMemory(fixed(10, 10), 50), withMemory(fixed(10, 10), 50)), NoJointPlacement},
		"a sidecar too large for any":       {load(gpuNode("n", 1), 0, runs(fixed(100, 100))), podOf(fixed(10, 10), withMemory(fixed(10, 10), 99)), TooLarge},
		"a sidecar without room":            {load(gpuNode("n", 1), 0, runs(fixed(60, 100))), podOf(fixed(10, 100), fixed(50, 100)), NoSMTime},
		"a sidecar kept apart by its class": {gpuNode("n", 1), podOf(fixed(10, 100), elastic(10, 20)), NoJointPlacement},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			plan, _, refusal := bestFit(Slots).Place(c.node, c.pod)
			if refusal != c.want || plan != nil {
				t.Errorf("got %q and plan %v, want %q", refusal, plan, c.want)
			}
		})
	}
}

func TestTakeFollowsThePlan(t *testing.T) {
	n := gpuNode("n", 2)
	pod := podOf(fixed(50, 40), withMemory(fixed(30, 100), 7))
	plan := Plan{{{Slice: 1, Class: share.MPS}}, {{Slice: 1, Class: share.MPS}}}
	taken := n.Clone()
	taken.Take(Slots, pod, plan)
	if !n.Loads[1].Empty() || !taken.Loads[0].Empty() {
		t.Error("Take loaded a slice that the plan does not name")
	}
	l := &taken.Loads[1]
	if l.Memory() != 8<<30 || l.Requested() != 500*400+300*1000 || len(l.Residents()) != 2 {
		t.Errorf("memory %d, requested %d, %d residents", l.Memory(), l.Requested(), len(l.Residents()))
	}
	want := Resident{Tenant: "a", Model: Slots, Class: share.MPS, Share: fixed(50, 40)}
	if diff := cmp.Diff(want, l.Residents()[0]); diff != "" {
		t.Error(diff)
	}
}

func TestSliceIndex(t *testing.T) {
	if i, ok := migNode().SliceIndex("m1"); !ok || i != 1 {
		t.Errorf("m1 is at %d, %v", i, ok)
	}
	if _, ok := migNode().SliceIndex("d0"); ok {
		t.Error("a device is no slice")
	}
}

func TestAdmitsHoldsAPlanAgainstAnotherState(t *testing.T) {
	pod := podOf(fixed(50, 100), fixed(50, 100))
	mps := func(slice int) []Pick { return []Pick{{Slice: slice, Class: share.MPS}} }
	half := runs(fixed(50, 100))
	cases := map[string]struct {
		node *Node
		plan Plan
		want bool
	}{
		"one slice for both":           {gpuNode("n", 2), Plan{mps(0), mps(0)}, true},
		"two slices":                   {load(gpuNode("n", 2), 0, half), Plan{mps(0), mps(1)}, true},
		"one slice, with room for one": {load(gpuNode("n", 2), 0, half), Plan{mps(0), mps(0)}, false},
		"another class":                {gpuNode("n", 2), Plan{{{Slice: 0, Class: share.Elastic}}, mps(1)}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			before := totals(c.node)
			if got := bestFit(Slots).Admits(c.node, pod, c.plan); got != c.want || totals(c.node) != before {
				t.Errorf("admits: %v; the node was %s and is %s", got, before, totals(c.node))
			}
		})
	}
}
