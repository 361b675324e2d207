package rebalance

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// clusters is how many random ones each test plans for.
const clusters = 1000

// TestFree compares plans for random clusters with an independent recount, and with all ways to empty one device.
func TestFree(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	freed, missed, possible := 0, 0, 0
	for range clusters {
		c, l := randomCluster(r), Limits{Moves: r.IntN(6), PerDevice: 1 + r.IntN(4)}
		plan := Free(c, l)
		w := newWorld(c)
		before := w.used()
		if err := w.replay(plan, l); err != nil {
			t.Fatalf("%v in %+v", err, plan)
		}
		after := w.used()
		for d := range after {
			if !before[d] {
				t.Fatalf("%+v is used, and was not", d)
			}
		}
		for _, d := range plan.Freed {
			if !before[d] || after[d] {
				t.Fatalf("%+v is not freed by %+v", d, plan)
			}
		}
		if len(plan.Freed) != len(before)-len(after) || len(plan.Moves) > l.PerDevice*len(plan.Freed) {
			t.Fatalf("%d devices freed: %+v", len(before)-len(after), plan)
		}
		freed += len(plan.Freed)
		if canFree(c, l) {
			possible++
			if len(plan.Freed) == 0 {
				missed++
			}
		}
		if again := Free(c, l); !reflect.DeepEqual(again, plan) {
			t.Fatalf("first %+v, then %+v", plan, again)
		}
	}
	t.Logf("%d devices freed in %d clusters; of %d in which one can be, %d missed", freed, clusters, possible, missed)
	if possible < clusters/20 || missed > possible/50 {
		t.Errorf("%d of %d missed", missed, possible)
	}
}

// TestFreeLeavesThoseThatSpread: a pod that wishes for empty devices is not evicted to free one, which it would take again, but for a pod that waits.
func TestFreeLeavesThoseThatSpread(t *testing.T) {
	for wish, moves := range map[share.Packing]int{share.AnyPacking: 1, share.Binpack: 1, share.Spread: 0} {
		t.Run(string(wish), func(t *testing.T) {
			c := &Cluster{Nodes: []*packing.Node{testNode("n", 2)}, Packer: packing.Packer{
				Rules: packing.NewRules(packing.Slots), Ranker: packing.Balance{Demand: &packing.Demand{}},
			}}
			for gpu, sm := range []share.PerMille{300, 600} {
				pod := testPod(sm)
				pod.Plan, pod.Movable, pod.Request.Packing = packing.Plan{{{Slice: gpu, Class: share.MPS}}}, gpu == 0, wish
				c.Pods = append(c.Pods, pod)
			}
			if plan := Free(c, Limits{Moves: 9}); len(plan.Moves) != moves {
				t.Errorf("to free a device: %+v", plan)
			}
			waiting := testPod(share.Whole)
			if plan, ok := Admit(c, &waiting, Limits{Moves: 9}); !ok || len(plan.Moves) != 1 {
				t.Errorf("for one that waits: %t, %+v", ok, plan)
			}
		})
	}
}

// TestAdmit does so for a pod that waits, and the fewest moves of pods of one node.
func TestAdmit(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	missed, more, admitted := 0, 0, [4]int{}
	for range clusters {
		c, waiting, l := randomCluster(r), randomPod(r), Limits{Moves: r.IntN(4)}
		if sh := &waiting.Request.Containers[0].Share; r.IntN(2) == 0 {
			sh.SMRequest, sh.SMLimit = share.Whole, share.Whole
		}
		plan, ok := Admit(c, &waiting, l)
		want, possible := fewestMoves(c, &waiting, min(2, l.Moves))
		if ok {
			w := newWorld(c)
			if err := w.replay(plan, l); err != nil {
				t.Fatalf("%v in %+v", err, plan)
			}
			if !w.takes(&waiting, plan.Node) {
				t.Fatalf("the waiting pod does not fit after %+v", plan)
			}
			admitted[len(plan.Moves)]++
		}
		switch {
		case possible && !ok:
			missed++
		case possible && len(plan.Moves) > want:
			more++
		case possible && len(plan.Moves) < want:
			t.Fatalf("%d moves, where the fewest are %d", len(plan.Moves), want)
		}
	}
	t.Logf("admitted after 0, 1, ... moves %v; missed %d, with more moves than needed %d", admitted, missed, more)
	if admitted[1] < 40 || admitted[2] < 3 || missed+more > (admitted[1]+admitted[2])/25 {
		t.Error("too few, or too many missed")
	}
}

// takes reports whether one more pod fits on a node.
func (w *world) takes(p *Pod, node int) bool {
	if w.c.Eligible != nil && !w.c.Eligible(p, node) {
		return false
	}
	c := *w.c
	c.Pods = append(slices.Clone(c.Pods), *p)
	more := &world{c: &c, spots: append(slices.Clone(w.spots), nil)}
	for plan := range plansOf(p, c.Nodes[node]) {
		more.spots[len(c.Pods)-1] = []spot{{node, plan}}
		if more.check() == nil {
			return true
		}
	}
	return false
}

// plansOf yields all sets of slices of a node for a pod of one container.
func plansOf(p *Pod, n *packing.Node) func(func(packing.Plan) bool) {
	return func(yield func(packing.Plan) bool) {
		for i := range n.Slices {
			one := packing.Pick{Slice: i, Class: classOf(p)}
			if p.Request.Containers[0].VGPUs == 1 {
				if !yield(packing.Plan{{one}}) {
					return
				}
				continue
			}
			for k := range i {
				if !yield(packing.Plan{{{Slice: k, Class: classOf(p)}, one}}) {
					return
				}
			}
		}
	}
}

// canFree reports whether there is a device whose pods all have other places on devices in use, in some order.
func canFree(c *Cluster, l Limits) bool {
	used := newWorld(c).used()
	for d := range used {
		w := newWorld(c)
		var pods []int
		for i := range c.Pods {
			p := &c.Pods[i]
			if p.Node == d.Node && slices.ContainsFunc(p.Plan[0], func(k packing.Pick) bool { return c.Nodes[d.Node].Slices[k.Slice].Device == d.ID }) {
				pods = append(pods, i)
			}
		}
		if len(pods) > min(l.Moves, l.PerDevice) {
			continue
		}
		places := func(at Device) bool { return used[at] && at != d }
		if w.canMove(pods, places, slices.Clone(c.Budgets), func() bool { return true }) {
			return true
		}
	}
	return false
}

// canMove reports whether the pods can be moved, in some order, so that done is true in the end.
func (w *world) canMove(pods []int, places func(Device) bool, budgets []int, done func() bool) bool {
	if len(pods) == 0 {
		return done()
	}
	for at, p := range pods {
		pod := &w.c.Pods[p]
		if !pod.Movable || slices.ContainsFunc(pod.Budgets, func(b int) bool { return budgets[b] == 0 }) {
			return false
		}
		less := slices.Clone(budgets)
		for _, b := range pod.Budgets {
			less[b]--
		}
		others := slices.Delete(slices.Clone(pods), at, at+1)
		home := w.spots[p]
		for node, n := range w.c.Nodes {
			if w.c.Eligible != nil && !w.c.Eligible(pod, node) {
				continue
			}
			for plan := range plansOf(pod, n) {
				if slices.ContainsFunc(plan[0], func(k packing.Pick) bool { return !places(Device{node, n.Slices[k.Slice].Device}) }) {
					continue
				}
				ok := true
				if pod.Twice {
					w.spots[p] = append(slices.Clone(home), spot{node, plan})
					ok = w.check() == nil
				}
				w.spots[p] = []spot{{node, plan}}
				if ok && w.check() == nil && w.canMove(others, places, less, done) {
					return true
				}
			}
		}
		w.spots[p] = home
	}
	return false
}

// fewestMoves returns how many pods of one node have to move for a waiting pod, up to a bound.
func fewestMoves(c *Cluster, waiting *Pod, most int) (int, bool) {
	for size := range most + 1 {
		for node := range c.Nodes {
			var here []int
			for i := range c.Pods {
				if c.Pods[i].Node == node {
					here = append(here, i)
				}
			}
			for _, pods := range subsets(here, size) {
				w := newWorld(c)
				if w.canMove(pods, func(Device) bool { return true }, c.Budgets, func() bool { return w.takes(waiting, node) }) {
					return size, true
				}
			}
		}
	}
	return 0, false
}

func subsets(of []int, size int) (sets [][]int) {
	if size == 0 {
		return [][]int{nil}
	}
	for i := range of {
		for _, rest := range subsets(of[i+1:], size-1) {
			sets = append(sets, append([]int{of[i]}, rest...))
		}
	}
	return sets
}

// on returns a cluster of one node with a GPU for each list of pods.
func on(gpus ...[]Pod) *Cluster {
	c := &Cluster{Packer: packing.Packer{Rules: packing.NewRules(packing.Slots), Ranker: packing.Balance{Demand: &packing.Demand{}}}}
	c.Nodes = []*packing.Node{testNode("n", len(gpus))}
	for slice, pods := range gpus {
		for _, p := range pods {
			p.Plan = packing.Plan{{{Slice: slice, Class: classOf(&p)}}}
			c.Pods = append(c.Pods, p)
		}
	}
	return c
}

// TestWhoGoes: pods of best effort and elastic ones are moved before others, though that takes more moves.
func TestWhoGoes(t *testing.T) {
	kind := func(p Pod, slo, elastic bool) Pod {
		if slo {
			p.Request.Priority = share.SLO
		}
		if elastic {
			p.Request.Containers[0].Share.SMLimit += 100
		}
		return p
	}
	small := testPod(200)
	for name, tc := range map[string]struct {
		gpus [][]Pod
		want []int // pods
	}{
		"fewer":           {[][]Pod{{small, small}, {small}}, []int{2}},
		"best effort":     {[][]Pod{{small, small}, {kind(small, true, false)}}, []int{0, 1}},
		"elastic":         {[][]Pod{{kind(small, false, true)}, {kind(small, true, true)}}, []int{0}},
		"not movable":     {[][]Pod{{small}, {func() Pod { p := small; p.Movable = false; return p }()}}, []int{0}},
		"no place":        {[][]Pod{{testPod(600)}, {testPod(500)}}, nil},
		"not to unused":   {[][]Pod{{small}, nil}, nil},
		"whole GPUs stay": {[][]Pod{{testPod(1000)}, {small}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			for _, m := range Free(on(tc.gpus...), Limits{Moves: 9}).Moves {
				got = append(got, m.Pod)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("pods %v go, want %v", got, tc.want)
			}
		})
	}
}

// TestWholeGPUIsLetIn: a pod that wants a whole GPU is let in by moving two small ones.
func TestWholeGPUIsLetIn(t *testing.T) {
	c := on([]Pod{testPod(200), testPod(300)}, []Pod{testPod(400), testPod(400)}, []Pod{testPod(700)})
	waiting := testPod(1000)
	plan, ok := Admit(c, &waiting, Limits{Moves: 2})
	if !ok || len(plan.Moves) != 2 || plan.Moves[0].Pod != 1 || plan.Moves[1].Pod != 0 || plan.Moves[0].Plan[0][0].Slice != 2 {
		t.Errorf("%v, %+v", ok, plan)
	}
	if _, ok := Admit(c, &waiting, Limits{Moves: 1}); ok {
		t.Error("let in by one move")
	}
}

// TestClusterIsUnchanged: planning leaves the nodes and pods that it was given as they were.
func TestClusterIsUnchanged(t *testing.T) {
	c := on([]Pod{testPod(200)}, []Pod{testPod(300)})
	waiting := testPod(1000)
	before := c.Nodes[0].Clone()
	if plan, ok := Admit(c, &waiting, Limits{Moves: 1}); !ok || len(Free(c, Limits{Moves: 1}).Freed) != 1 {
		t.Fatalf("%v, %+v", ok, plan)
	}
	if !reflect.DeepEqual(before, c.Nodes[0]) {
		t.Errorf("%+v", c.Nodes[0])
	}
}
