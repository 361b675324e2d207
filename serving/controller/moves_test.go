package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// world is a cluster with a scheduler and kubelets: pods get free instances of one node, and are Ready some seconds later. It counts what must not be.
type world struct {
	*cluster
	inventories map[string]kube.Inventory
	startsIn    time.Duration // until a pod that has a node is Ready
	neverReady  func(p *v1.Pod) bool

	known     map[types.UID]*v1.Pod
	bound     map[types.UID]time.Time
	without   int // looks at which a function had no pod that gets requests, after its first
	most      int // pods of one function
	mostMoves int // pods that take the place of others, and are not Ready
}

const worldPeriod = 500 * time.Millisecond

// live runs a cluster in which a function has replicas, until the test ends.
func live(c *cluster, nodes ...*v1.Node) *world {
	c.Helper()
	w := &world{cluster: c, inventories: map[string]kube.Inventory{}, startsIn: 2 * time.Second, known: map[types.UID]*v1.Pod{}, bound: map[types.UID]time.Time{}}
	for _, n := range nodes {
		inventory, _, err := kube.InventoryOf(n)
		if err != nil {
			c.Fatal(err)
		}
		w.inventories[n.Name] = inventory
	}
	go func() {
		for {
			w.look()
			select {
			case <-time.After(worldPeriod):
			case <-c.Context().Done():
				return
			}
		}
	}()
	return w
}

// look does what the scheduler and the kubelets do, has the controller see what has changed as a watch would, and counts.
func (w *world) look() {
	pods := w.all()
	seen := map[types.UID]bool{}
	serves, all, moving := map[string]int{}, map[string]int{}, 0
	for at := range pods {
		p := &pods[at]
		seen[p.UID] = true
		if p.Namespace == "other" {
			continue
		}
		before := w.known[p.UID]
		w.drive(p, pods)
		if before == nil {
			w.pods.handler().OnAdd(p, false)
		} else if before.ResourceVersion != p.ResourceVersion {
			w.pods.handler().OnUpdate(before, p)
		}
		w.known[p.UID] = p.DeepCopy()
		_, ready := api.Address(p)
		all[p.Labels[api.LabelFunction]]++
		if _, drained := p.Annotations[api.AnnotationDrain]; ready && !drained {
			serves[p.Labels[api.LabelFunction]]++
		}
		if movesFrom(p) != 0 && !ready {
			moving++
		}
	}
	for uid, p := range w.known {
		if !seen[uid] {
			delete(w.known, uid)
			w.pods.handler().OnDelete(p)
		}
	}
	for f, n := range all {
		w.most = max(w.most, n)
		if serves[f] == 0 && w.served(f) {
			w.without++
		}
	}
	w.mostMoves = max(w.mostMoves, moving)
}

// served reports whether a pod of a function has been Ready by now.
func (w *world) served(f string) bool {
	for uid, since := range w.bound {
		if p := w.known[uid]; p != nil && p.Labels[api.LabelFunction] == f && movesFrom(p) == 0 && time.Since(since) > w.startsIn+2*worldPeriod {
			return true
		}
	}
	return false
}

// drive places a pod, or makes it Ready.
func (w *world) drive(p *v1.Pod, all []v1.Pod) {
	since, is := w.bound[p.UID]
	_, ready := api.Address(p)
	switch {
	case !is && w.place(p, all):
		w.bound[p.UID] = time.Now()
	case !is && unschedulable(p) == nil:
		refuse(p)
		p.Status.Conditions[0].Message = "0/1 nodes are available"
		w.must(w.client.Status().Update(w.Context(), p))
	case is && !ready && time.Since(since) >= w.startsIn && (w.neverReady == nil || !w.neverReady(p)):
		makeReady(p)
		w.must(w.client.Status().Update(w.Context(), p))
	}
}

func (w *world) must(err error) {
	if err != nil && w.Context().Err() == nil {
		w.Error(err)
	}
}

// place gives each container of a pod an instance of a node that no other pod has, if there is one for each.
func (w *world) place(p *v1.Pod, all []v1.Pod) bool {
	request, _, err := kube.RequestOf(p)
	w.must(err)
	taken := map[string]bool{}
	for at := range all {
		placed, _, err := kube.PlacementOf(&all[at])
		w.must(err)
		for _, c := range placed.Containers {
			for _, v := range c.VGPUs {
				taken[v.Slice] = true
			}
		}
	}
	whole := share.Share{SMRequest: share.Whole, SMLimit: share.Whole, QuotaRequest: share.Whole, QuotaLimit: share.Whole}
	for node, inventory := range w.inventories {
		free := slices.DeleteFunc(slices.Clone(inventory.Slices), func(s kube.Slice) bool { return taken[s.ID] })
		placement := kube.Placement{Node: node, UID: p.UID, Model: kube.Slots}
		for _, c := range request.Containers {
			at := slices.IndexFunc(free, func(s kube.Slice) bool { return s.Profile == c.Slice })
			if at < 0 {
				break
			}
			s := whole
			s.Memory = c.Share.Memory
			placement.Containers = append(placement.Containers, kube.PlacedContainer{
				Name: c.Name, VGPUs: []kube.PlacedVGPU{{Slice: free[at].ID, Class: share.Exclusive, Priority: share.BestEffort, Share: s}},
			})
			free = slices.Delete(free, at, at+1)
		}
		if len(placement.Containers) < len(request.Containers) {
			continue
		}
		text, err := kube.EncodePlacement(placement)
		w.must(err)
		setAnnotation(&p.ObjectMeta, kube.AnnotationPlacement, text)
		p.Spec.NodeName = node
		w.must(w.client.Update(w.Context(), p))
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		w.must(w.client.Status().Update(w.Context(), p))
		return true
	}
	return false
}

// lead has the present controller do all that it does, until it is stopped.
func (w *world) lead(functions ...*api.GPUFunction) (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	go w.pods.Run(ctx)
	go w.cluster.known.fleet.Run(ctx)
	go w.moves.Run(ctx)
	for _, f := range functions {
		w.reconcile(f)
	}
	return func() { cancel(); synctest.Wait() }
}

// replicas returns the profiles of the pods of a function by the number of the instance.
func (w *world) replicas(function string) map[string][]string {
	found := map[string][]string{}
	for _, p := range w.all() {
		if p.Labels[api.LabelFunction] == function {
			for _, kind := range kindsOf(w.T, &p) {
				found[p.Labels[api.LabelInstance]] = append(found[p.Labels[api.LabelInstance]], kind)
			}
		}
	}
	return found
}

// told returns the reasons of the events by now that begin with a text.
func (w *world) told(prefix string) (all []string) {
	for {
		select {
		case e := <-w.recorder.Events:
			if fields := strings.Fields(e); len(fields) > 1 && strings.HasPrefix(fields[1], prefix) {
				all = append(all, e)
			}
		default:
			return all
		}
	}
}

// oneReplica is a function with a pipeline and one replica.
func oneReplica(t *testing.T, name string) *api.GPUFunction {
	f := images(t)
	f.Name, f.UID = name, types.UID("uid-"+name)
	f.Spec.Scaling.MinReplicas, f.Spec.Scaling.MaxReplicas = 1, new(1)
	return f
}

func sleep(d time.Duration) { time.Sleep(d); synctest.Wait() }

// free deletes the pod that has an instance.
func (w *world) free(holder *v1.Pod) {
	w.Helper()
	if err := w.client.Delete(w.Context(), holder); err != nil {
		w.Fatal(err)
	}
}

// TestMoves: a replica in two parts serves until another one on a single instance, which has become free, is Ready.
func TestMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node, f := instanceNode(t, "a", "2g.20gb", "1g.10gb", "1g.10gb"), oneReplica(t, "images")
		holder := on(t, "a", "MIG-a-0")
		c := newCluster(t, node, holder, f)
		w := live(c, node)
		stop := w.lead(f)
		defer stop()
		sleep(30 * time.Second)
		if got := w.replicas("images"); len(got) != 1 || len(got["1"]) != 2 {
			t.Fatalf("replicas %v while the large instance is taken", got)
		}
		w.free(holder)
		sleep(movesPeriod + 2*time.Second)
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

// TestMovesWithoutRoom: where somebody else gets the instance, or the replica there never starts, the one in parts goes on. The next try is after a pause.
func TestMovesWithoutRoom(t *testing.T) {
	failed := v1.PodStatus{Phase: v1.PodFailed, Message: "out of memory"}
	for name, test := range map[string]struct {
		hold, fail bool
		why        string
	}{
		"taken": {hold: true, why: "no room for it: 0/1 nodes"},
		"fails": {fail: true, why: "out of memory"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				node, f := instanceNode(t, "a", "2g.20gb", "1g.10gb", "1g.10gb"), oneReplica(t, "images")
				holder := on(t, "a", "MIG-a-0")
				c := newCluster(t, node, holder, f)
				w := live(c, node)
				tries := 0
				c.calls.Create = func(ctx context.Context, api client.WithWatch, o client.Object, options ...client.CreateOption) error {
					if p, ok := o.(*v1.Pod); ok && movesFrom(p) != 0 {
						if tries++; test.hold {
							again := on(t, "a", "MIG-a-0")
							again.Name = fmt.Sprintf("again-%d", tries)
							if tries == 1 {
								w.must(api.Create(ctx, again))
							}
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
				w.free(holder)
				sleep(movesPeriod + 30*time.Second)
				if got := w.replicas("images"); len(got) != 1 || len(got["1"]) != 2 || tries != 1 || w.without > 0 {
					t.Errorf("replicas %v after %d tries; %d times nobody served", got, tries, w.without)
				}
				if told := w.told("MoveAbandoned"); len(told) != 1 || !strings.Contains(told[0], test.why) || !strings.Contains(told[0], "in 1m0s") {
					t.Errorf("events %q", told)
				}
				if test.hold {
					return
				}
				sleep(time.Minute)
				if told := w.told("MoveAbandoned"); tries != 2 || len(told) != 1 || !strings.Contains(told[0], "in 2m0s") {
					t.Errorf("%d tries, events %q", tries, told)
				}
			})
		})
	}
}

// TestMovesAtOnce: there are no more moves at the same time than may be, and none while a pod of one has no node. All replicas move in the end.
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
				w.startsIn = 12 * time.Second // longer than a period
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

// TestMovesAfterCrash: the controller ends before or after any of its writes, while a replica moves. The next one goes on: in the end there is the replica on
// one instance and nothing else, and somebody served all the time.
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
			// The pod of the move, the drain and the end of the other one at least.
			if crashes < 3 || crashes == limit {
				t.Errorf("%d crashes", crashes)
			}
			t.Logf("%d crashes", crashes)
		})
	}
}

// crashAt has a controller end at one of its writes since the large instance was free, and reports whether there were as many.
func crashAt(t *testing.T, write int, done bool) (crashed bool) {
	node, f := instanceNode(t, "a", "2g.20gb", "1g.10gb", "1g.10gb"), oneReplica(t, "images")
	holder := on(t, "a", "MIG-a-0")
	c := newCluster(t, node, holder, f)
	w := live(c, node)
	stop := w.lead(f)
	sleep(15 * time.Second)
	writes, died := 0, make(chan struct{})
	at := func(do func() error) error {
		if writes++; writes < write {
			return do()
		}
		if writes == write {
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
		c.calls.Create, c.calls.Patch, c.calls.Delete = nil, nil, nil
		c.lead()
		sleep(3 * time.Second) // until the next one leads
		stop = w.lead(f)
	case <-time.After(20 * time.Second):
	}
	sleep(30 * time.Second)
	defer stop()
	got := w.replicas("images")
	if len(got) != 1 || !slices.Equal(got["2"], []string{"2g.20gb"}) { // 3 if the next controller had begun anew
		t.Errorf("crash at write %d: replicas %v", write, got)
	}
	if w.most != 2 || w.without > 0 || w.mostMoves > 1 {
		t.Errorf("crash at write %d: %d pods at once, %d moves, %d times nobody served", write, w.most, w.mostMoves, w.without)
	}
	return crashed
}
