package audit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/rebalanceview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/rebalance"
)

// TestNobodyIsEvictedWithoutAPlace makes the moves of random plans one by one on API objects. By the checker, each pod has a place when its turn comes,
// on the node planned too, breaks no rule there, and what the moves are for is won in the end.
func TestNobodyIsEvictedWithoutAPlace(t *testing.T) {
	moves, admitted := 0, 0
	for seed := range uint64(20) {
		m := newMoving(t, seed)
		free := rebalance.Free(&m.view.Cluster, rebalance.Limits{Moves: 12})
		moves += len(free.Moves)
		m.follow(t, free)
		m.unused(t, free)

		m = newMoving(t, seed)
		waits := m.make(spec{name: "waits", sm: 100})
		waits.Spec.SchedulerName = kube.SchedulerName
		if len(m.check().Admissible(waits)) > 0 {
			continue
		}
		if plan, ok := m.view.Admit(&waits, rebalance.Limits{Moves: 12}); ok {
			moves, admitted = moves+len(plan.Moves), admitted+1
			m.follow(t, plan)
			if node := m.view.Nodes[plan.Node].Name; !slices.Contains(m.check().Admissible(waits), node) {
				t.Errorf("seed %d: after %d moves node %s has no room for the pod that waits", seed, len(plan.Moves), node)
			}
		}
	}
	t.Logf("%d moves, %d pods let in", moves, admitted)
	if moves < 20 || admitted < 4 {
		t.Errorf("only %d moves, and %d pods let in", moves, admitted)
	}
}

// TestCheckerRefusesMoves: the checker finds a move to a full node.
func TestCheckerRefusesMoves(t *testing.T) {
	c := newCluster(t)
	c.node("a", gpu("a0"))
	c.node("b", gpu("b0"))
	c.add(spec{name: "small", node: "a", slices: []string{"a0"}, sm: 50})
	c.add(spec{name: "large", node: "b", slices: []string{"b0"}, sm: 60})
	m := &moving{cluster: c}
	pod := m.evict("team/small")
	if names := m.check().Admissible(pod); !slices.Equal(names, []string{"a"}) {
		t.Errorf("the pod has a place on %v", names)
	}
	c.add(spec{name: "small", node: "b", slices: []string{"b0"}, sm: 50})
	if len(m.check().Violations) == 0 {
		t.Error("no rule is broken on a slice with 110 %")
	}
}

// moving is a cluster whose pods are moved, and the view by which that was planned.
type moving struct {
	*cluster
	view *rebalanceview.View
}

// newMoving scatters pods at random over some GPUs; most of them may be moved.
func newMoving(t *testing.T, seed uint64) *moving {
	random := rand.New(rand.NewPCG(seed, 26))
	c := newCluster(t)
	var on [][2]string
	for n := range 3 + random.IntN(3) {
		var gpus []kube.Slice
		for i := range 1 + random.IntN(3) {
			id := fmt.Sprintf("n%d-%d", n, i)
			gpus, on = append(gpus, gpu(id)), append(on, [2]string{fmt.Sprint("n", n), id})
		}
		c.node(fmt.Sprint("n", n), gpus...)
	}
	for i := range 4 * len(on) {
		at := on[random.IntN(len(on))]
		s := spec{
			name: fmt.Sprint("p", i), node: at[0], slices: []string{at[1]}, sm: []int64{10, 25, 30, 50, 60}[random.IntN(5)],
			quota: []int64{30, 50, 100}[random.IntN(3)], memory: int64(1000 * (1 + random.IntN(12))), cpu: int64(1 + random.IntN(6)),
		}
		if random.IntN(4) == 0 {
			s.tenant = "other"
		}
		pod := c.add(s)
		pod.Spec.SchedulerName = kube.SchedulerName
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true)}}
		if random.IntN(6) > 0 {
			pod.Annotations[kube.AnnotationRebalance] = kube.RebalanceAllow
		}
		if len(c.check().Violations) > 0 {
			c.pods = c.pods[:len(c.pods)-1]
		}
	}
	o := rebalanceview.Objects{Scheduler: kube.SchedulerName}
	for i := range c.nodes {
		o.Nodes = append(o.Nodes, &c.nodes[i])
	}
	for _, pod := range c.pods {
		o.Pods = append(o.Pods, pod.DeepCopy())
	}
	return &moving{c, rebalanceview.New(o)}
}

// evict removes a pod and returns it as its replacement comes.
func (m *moving) evict(name string) v1.Pod {
	for i := range m.pods {
		if pod := m.pods[i]; pod.Namespace+"/"+pod.Name == name {
			m.pods = slices.Delete(m.pods, i, i+1)
			pod.Spec.NodeName = ""
			delete(pod.Annotations, kube.AnnotationPlacement)
			return pod
		}
	}
	m.t.Fatalf("no pod %s", name)
	return v1.Pod{}
}

// follow makes the moves of a plan one by one.
func (m *moving) follow(t *testing.T, plan rebalance.Plan) {
	t.Helper()
	for i, move := range plan.Moves {
		pod, to := m.evict(m.view.Cluster.Pods[move.Pod].Name), m.view.Nodes[move.To]
		if pod.Annotations[kube.AnnotationRebalance] != kube.RebalanceAllow {
			t.Errorf("%s has not agreed", pod.Name)
		}
		if names := m.check().Admissible(pod); !slices.Contains(names, to.Name) {
			t.Errorf("move %d: %s has a place on %v, and was to go to %s", i, pod.Name, names, to.Name)
		}
		pod.Spec.NodeName = to.Name
		m.place(&pod, placementOf(t, &pod, to, move.Plan))
		m.pods = append(m.pods, pod)
		if r := m.check(); len(r.Violations) > 0 || len(r.Orphans) > 0 {
			t.Errorf("move %d: %+v, %+v", i, r.Violations, r.Orphans)
		}
	}
}

// unused checks that the devices that a plan has freed hold nothing.
func (m *moving) unused(t *testing.T, plan rebalance.Plan) {
	t.Helper()
	for _, s := range m.check().Slices {
		for _, d := range plan.Freed {
			if s.Device == d.ID && len(s.Shares) > 0 {
				t.Errorf("%s was to be free and holds %+v", d.ID, s.Shares)
			}
		}
	}
}

// placementOf returns the placement of a pod at the slices of a plan.
func placementOf(t *testing.T, pod *v1.Pod, on *packing.Node, plan packing.Plan) kube.Placement {
	t.Helper()
	request, _, err := kube.RequestOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	out := kube.Placement{Node: on.Name, UID: pod.UID, Model: kube.Slots}
	for c, picks := range plan {
		placed := kube.PlacedContainer{Name: request.Containers[c].Name}
		for _, pick := range picks {
			placed.VGPUs = append(placed.VGPUs, kube.PlacedVGPU{
				Slice: string(on.Slices[pick.Slice].ID), Class: pick.Class, Priority: request.Priority, Share: request.Containers[c].Share,
			})
		}
		out.Containers = append(out.Containers, placed)
	}
	return out
}
