package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// TestMoves: a replica in two parts keeps serving until a replacement on a single instance that has become free is Ready.
func TestMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, f := instanceNode(t, "a", "2g.20gb", "1g.10gb", "1g.10gb"), oneReplica(t, "images")
		holder := on(t, "a", "MIG-a-0")
		c := newCluster(t, node, holder, f)
		w := live(c, node)
		stop := w.lead(f)
		defer stop()
		sleep(3*movesPeriod + movesPeriod/2) // between two reviews
		if got := w.replicas("images"); len(got) != 1 || len(got["1"]) != 2 {
			t.Fatalf("replicas %v while the large instance is taken", got)
		}
		w.free(holder)
		sleep(movesPeriod/2 + time.Second)
		if got := w.replicas("images"); len(got) != 2 || !slices.Equal(got["2"], []string{"2g.20gb"}) {
			t.Fatalf("replicas %v before the other one is ready", got)
		}
		sleep(5 * time.Second)
		if got := w.replicas("images"); len(got) != 1 || !slices.Equal(got["2"], []string{"2g.20gb"}) {
			t.Errorf("replicas %v", got)
		}
		sleep(time.Minute)
		if got := w.replicas("images"); len(got) != 1 || got["2"] == nil || w.most != 2 || w.without > 0 {
			t.Errorf("replicas %v; %d at once, %d times nobody served", got, w.most, w.without)
		}
		if told := w.told("Mov"); len(told) != 2 || !strings.Contains(told[0], "replica ml/images-2 starts in its place on one of 2g.20gb") || !strings.Contains(told[1], "ml/images-2 is ready on one") {
			t.Errorf("events %q", told)
		}
	})
}

// TestSameUUIDs: nodes with the same simulated devices still have separate instances, even though a review of moves considers all nodes together.
func TestSameUUIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := instanceNode(t, "a", "2g.20gb", "1g.10gb"), instanceNode(t, "b")
		b.Annotations = a.Annotations
		c := newCluster(t, a, b)
		c.run(false)
		nodes, _, err := cutter{c.pods.client, c.pods.onNodes}.fragments(t.Context(), pipelineOf(images(t)))
		if err != nil {
			t.Fatal(err)
		}
		ids := map[string]bool{}
		for _, n := range nodes {
			for _, s := range n.free {
				ids[s.ID] = true
			}
		}
		if len(ids) != 4 {
			t.Errorf("instances %v, want four", ids)
		}
	})
}

// TestLayoutOf: environment variables that a template or somebody else has written are not mistaken for a cut.
func TestLayoutOf(t *testing.T) {
	const stages = `{"version":1,"function":"images","stages":[[{"nodes":["denoise"],"slice":"server"}],[{"nodes":["classify"],"slice":"gshare-stage-1"}]]}`
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, instanceNode(t, "a", "1g.10gb", "1g.10gb"))
		c.run(false)
		f := images(t)
		f.Spec.Template.Spec.Containers[0].Env = []v1.EnvVar{{Name: stagesVariable, Value: "{"}} // the last variable of a name counts
		c.pods.Create(instanceOfFunction(f, 1))
		c.event()
		p := c.replica()
		l, cut := layoutOf(p)
		if !cut || len(l.Stages) != 2 || l.Stages[0][0].Slice != "1g.10gb" || l.Stages[1][0].Slice != "1g.10gb" || !slices.Equal(l.Stages[1][0].Nodes, []string{"classify"}) {
			t.Errorf("%v, %+v", cut, l)
		}
		set := func(p *v1.Pod, text string) {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, v1.EnvVar{Name: stagesVariable, Value: text})
		}
		for name, change := range map[string]func(p *v1.Pod){
			"no stage": func(p *v1.Pod) { p.Spec.InitContainers = nil },
			"another stage": func(p *v1.Pod) {
				p.Spec.InitContainers = append(p.Spec.InitContainers, v1.Container{Name: "gshare-stage-2"})
			},
			"no JSON":            func(p *v1.Pod) { set(p, "[") },
			"nothing":            func(p *v1.Pod) { p.Spec.Containers[0].Env = nil },
			"a container twice":  func(p *v1.Pod) { set(p, strings.ReplaceAll(stages, "gshare-stage-1", "server")) },
			"an empty layout":    func(p *v1.Pod) { set(p, "{}") },
			"whole, by template": func(p *v1.Pod) { p.Spec.InitContainers = nil; set(p, stages) },
		} {
			other := p.DeepCopy()
			change(other)
			if l, cut := layoutOf(other); cut {
				t.Errorf("%s: taken for %+v", name, l)
			}
		}
	})
}

// TestMovesWithoutRoom: if somebody else gets the instance, or the replacement gets no node or never starts, the replica in parts keeps serving. The next
// attempt follows after a pause.
func TestMovesWithoutRoom(t *testing.T) {
	failed := v1.PodStatus{Phase: v1.PodFailed, Message: "out of memory"}
	for name, test := range map[string]struct {
		hold, fail bool
		gate       bool          // the pod of the move has a scheduling gate
		late       time.Duration // how much later than for want of room the move ends, because the scheduler does not look at its pod
		objects    []client.Object
		tries      int // pods that the controller tries to create
		why        string
	}{
		"taken":          {hold: true, tries: 1, why: "no room for it: 0/1 nodes"},
		"fails":          {fail: true, tries: 1, why: "out of memory"},
		"gated":          {gate: true, tries: 1, why: "held by the scheduling gate kueue.x-k8s.io/admission"},
		"no scheduler":   {late: moveLimit, tries: 1, why: "it had no node within 1m0s: waits for the scheduler"},
		"over its quota": {objects: []client.Object{policy("gold", "ml", 1)}, why: "SharePolicy gold allows 1 replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node, f := instanceNode(t, "a", "2g.20gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"), oneReplica(t, "images")
				holder := on(t, "a", "MIG-a-0")
				c := newCluster(t, append(test.objects, node, holder, f)...)
				w := live(c, node)
				var count atomic.Int32
				c.calls.Create = func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.CreateOption) error {
					if p, ok := o.(*v1.Pod); ok && movesFrom(p) != 0 {
						if n := count.Add(1); test.hold && n == 1 {
							again := on(t, "a", "MIG-a-0")
							again.Name = "again"
							w.must(api.Create(ctx, again))
						}
						if test.gate {
							p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
						}
					}
					return api.Create(ctx, o, options...)
				}
				w.neverReady = func(p *v1.Pod) bool {
					if movesFrom(p) == 0 || !test.fail {
						return false
					}
					if p.Status.Phase != v1.PodFailed {
						p.Status = failed
						w.must(c.client.Status().Update(t.Context(), p))
					}
					return true
				}
				defer w.lead(f)()
				sleep(10 * time.Second)
				if test.late > 0 {
					w.placesIn = time.Hour
				}
				w.free(holder)
				sleep(movesPeriod + 3*time.Second)
				for _, p := range w.all() {
					if movesFrom(&p) != 0 && unschedulable(&p) != nil && !mayRecut(c.pods, "ml/images-2", &p) {
						t.Error("replicas in reserve are ended for it")
					}
				}
				sleep(30*time.Second + test.late)
				if got := w.replicas("images"); len(got) != 1 || len(got["1"]) != 2 || int(count.Load()) != test.tries || w.without > 0 {
					t.Errorf("replicas %v after %d tries; %d times nobody served", got, count.Load(), w.without)
				}
				if told := w.told("MoveAbandoned", "QuotaExceeded"); len(told) != 1 || !strings.Contains(told[0], test.why) || !strings.Contains(told[0], "in 1m0s") {
					t.Errorf("events %q", told)
				}
				if test.hold {
					return
				}
				sleep(time.Minute + test.late)
				if told := w.told("MoveAbandoned"); int(count.Load()) != 2*test.tries || len(told) != 1 || !strings.Contains(told[0], "in 2m0s") {
					t.Errorf("%d tries, events %q", count.Load(), told)
				}
			})
		})
	}
}

// TestMovesWaitForNode: until the scheduler has placed the pod of a move, the instance for it looks free, but nothing else may be moved there.
func TestMovesWaitForNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := instanceNode(t, "a", "2g.20gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb")
		first, second := oneReplica(t, "images"), oneReplica(t, "others")
		holder := on(t, "a", "MIG-a-0")
		c := newCluster(t, node, holder, first, second)
		w := live(c, node)
		defer w.lead(first, second)()
		sleep(10 * time.Second)
		w.placesIn = movesPeriod + 5*time.Second
		w.free(holder)
		sleep(50 * time.Second)
		moved := 0
		for _, f := range []string{"images", "others"} {
			if got := w.replicas(f); len(got) == 1 && got["2"] != nil {
				moved++
			}
		}
		if told := w.told("Mov"); moved != 1 || w.mostMoves != 1 || len(told) != 2 {
			t.Errorf("%d have moved, %d at once; events %q", moved, w.mostMoves, told)
		}
	})
}

// TestMovesAtOnce: the number of concurrent moves is limited, and no move begins while the pod of another one has no node. In the end, all replicas have
// moved.
func TestMovesAtOnce(t *testing.T) {
	for _, atOnce := range []int{1, 2} {
		t.Run(fmt.Sprint(atOnce), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes := []*v1.Node{instanceNode(t, "a", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb", "1g.10gb"), instanceNode(t, "b", "2g.20gb", "2g.20gb", "2g.20gb")}
				objects := []client.Object{nodes[0], nodes[1]}
				var functions []*api.GPUFunction
				var holders []*v1.Pod
				for at := range 3 {
					f := oneReplica(t, fmt.Sprintf("images-%d", at))
					functions, holders = append(functions, f), append(holders, on(t, "b", fmt.Sprintf("MIG-b-%d", at)))
					objects = append(objects, f, holders[at])
				}
				c := newCluster(t, objects...)
				c.moves.atOnce = atOnce
				w := live(c, nodes...)
				w.startsIn = 12 * time.Second // longer than a review period
				defer w.lead(functions...)()
				sleep(20 * time.Second)
				for _, h := range holders {
					w.free(h)
				}
				sleep(80 * time.Second)
				for _, f := range functions {
					if got := w.replicas(f.Name); len(got) != 1 || !slices.Equal(got["2"], []string{"2g.20gb"}) {
						t.Errorf("replicas of %s: %v", f.Name, got)
					}
				}
				if w.mostMoves != atOnce || w.most != 2 || w.without > 0 {
					t.Errorf("%d moves at once, %d pods of a function, %d times nobody served", w.mostMoves, w.most, w.without)
				}
			})
		})
	}
}

// TestMovesAfterCrash: the controller crashes before or after any of its writes while a replica moves, and the next controller continues. In the end there is
// only the replica on one instance, and some replica was serving at all times.
func TestMovesAfterCrash(t *testing.T) {
	const limit = 20
	for _, done := range []bool{false, true} {
		t.Run(fmt.Sprintf("written=%v", done), func(t *testing.T) {
			crashes := 0
			for write := 1; write <= limit; write++ {
				crashed := false
				synctest.Test(t, func(t *testing.T) { crashed = crashAt(t, write, done) })
				if !crashed {
					break
				}
				crashes++
			}
			// At least: the pod of the move, the drain, and the end of the other pod.
			if crashes < 3 || crashes == limit {
				t.Errorf("%d crashes", crashes)
			}
			t.Logf("%d crashes", crashes)
		})
	}
}

// crashAt makes a controller crash at one of its writes, counted from when the large instance became free. It reports whether there were that many writes.
func crashAt(t *testing.T, write int, done bool) (crashed bool) {
	node, f := instanceNode(t, "a", "2g.20gb", "1g.10gb", "1g.10gb"), oneReplica(t, "images")
	holder := on(t, "a", "MIG-a-0")
	c := newCluster(t, node, holder, f)
	w := live(c, node)
	stop := w.lead(f)
	sleep(15 * time.Second)
	died := make(chan struct{})
	var writes atomic.Int32
	at := func(do func() error) error {
		n := int(writes.Add(1))
		if n < write {
			return do()
		}
		if n == write {
			close(died)
			if done {
				if err := do(); err != nil {
					return err
				}
			}
		}
		return errors.New("the process has ended")
	}
	c.calls.Create = func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.CreateOption) error {
		return at(func() error { return w.Create(ctx, o, options...) })
	}
	c.calls.Patch = func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
		return at(func() error { return w.Patch(ctx, o, p, options...) })
	}
	c.calls.Delete = func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.DeleteOption) error {
		return at(func() error { return w.Delete(ctx, o, options...) })
	}
	if err := c.client.DeleteAllOf(t.Context(), &v1.Pod{}, client.InNamespace("other")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-died:
		crashed = true
		stop()
		w.mu.Lock()
		c.calls.Create, c.calls.Patch, c.calls.Delete = nil, nil, nil
		c.lead()
		w.mu.Unlock()
		sleep(3 * time.Second) // until the next controller leads
		stop = w.lead(f)
	case <-time.After(20 * time.Second):
	}
	sleep(30 * time.Second)
	defer stop()
	got := w.replicas("images")
	if len(got) != 1 || !slices.Equal(got["2"], []string{"2g.20gb"}) { // "3" if the next controller had started over
		t.Errorf("crash at write %d: replicas %v", write, got)
	}
	if w.most != 2 || w.without > 0 || w.mostMoves > 1 {
		t.Errorf("crash at write %d: %d pods at once, %d moves, %d times nobody served", write, w.most, w.mostMoves, w.without)
	}
	return crashed
}
