package sharing

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// TestChoiceIsThatOfAFreshPlugin: after any sequence of events, a plugin that remembers ranks and filters few nodes chooses the node that a new one
// chooses among all nodes, with the same demand.
func TestChoiceIsThatOfAFreshPlugin(t *testing.T) {
	kept, retried := 0, 0
	for seed := range uint64(4) {
		w := newChoices(t, seed)
		for range 80 {
			w.event(t)
			w.compare(t)
		}
		kept, retried = kept+w.kept, retried+w.retried
	}
	t.Logf("the ranks of %d changed nodes were kept, and %d pods were tried again", kept, retried)
	if kept < 20 || retried < 20 {
		t.Errorf("the ranks of %d changed nodes were kept, and %d pods were tried again", kept, retried)
	}
}

// choices is a cluster that changes at random, and the plugin that has seen all of it.
type choices struct {
	*Plugin
	handle        *fakeHandle
	random        *rand.Rand
	pods          int
	assumed       map[*v1.Pod]*fakeNode // placed and not confirmed
	kept, retried int
}

func newChoices(t *testing.T, seed uint64) *choices {
	h := newHandle()
	w := &choices{Plugin: newPlugin(t, h, 3), handle: h, random: rand.New(rand.NewPCG(seed, 9)), assumed: map[*v1.Pod]*fakeNode{}}
	for range 8 {
		w.addNode(t)
	}
	return w
}

func (w *choices) addNode(t *testing.T) {
	w.pods++ // names differ, and are not in the order of the list
	node := gpuNode(t, fmt.Sprintf("n%d-%d", w.random.IntN(100), w.pods), 1+w.random.IntN(4))
	inv, _, err := kube.InventoryOf(node)
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(node.Status.Allocatable, kube.NodeResources(inv))
	w.handle.snapshot = append(slices.Clone(w.handle.snapshot), newNodeInfo(node))
}

// anyNode returns one of the nodes.
func (w *choices) anyNode() *fakeNode {
	return w.handle.snapshot[w.random.IntN(len(w.handle.snapshot))].(*fakeNode)
}

// event changes the cluster.
func (w *choices) event(t *testing.T) {
	switch n := w.anyNode(); w.random.IntN(12) {
	case 0, 1, 2, 3, 4:
		w.arrive(t)
	case 5:
		w.confirm(t)
	case 6:
		if len(n.pods) > 0 {
			gone := n.pods[w.random.IntN(len(n.pods))]
			n.remove(gone)
			w.ledger.Forget(gone.UID)
			maps.DeleteFunc(w.assumed, func(pod *v1.Pod, _ *fakeNode) bool { return pod.UID == gone.UID })
		}
	case 7:
		n.generation = generations.Add(1) // something that nobody reads, such as an image
	case 8:
		w.update(t, n)
	case 9:
		if len(w.handle.snapshot) < 10 {
			w.addNode(t)
		}
	case 10:
		if len(w.handle.snapshot) > 5 {
			w.handle.snapshot = slices.DeleteFunc(slices.Clone(w.handle.snapshot), func(i fwk.NodeInfo) bool { return i == fwk.NodeInfo(n) })
		}
	case 11: // the snapshot as a copy, with the same generations
		for i, info := range w.handle.snapshot {
			if info == fwk.NodeInfo(n) {
				w.handle.snapshot = slices.Clone(w.handle.snapshot)
				copied := *n
				w.handle.snapshot[i] = &copied
				for pod, at := range w.assumed {
					if at == n {
						w.assumed[pod] = &copied
					}
				}
			}
		}
	}
}

func (w *choices) newPod() *v1.Pod {
	w.pods++
	name, percent := fmt.Sprint("pod-", w.pods), func() int64 { return int64(25 * (1 + w.random.IntN(4))) }
	if w.random.IntN(6) == 0 {
		pod := cpuPod(name)
		pod.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("0") // fits where CPU is overcommitted
		return pod
	}
	pod := gpuPod(name, percent(), percent())
	if w.random.IntN(5) == 0 {
		pod.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} // not plain
	}
	return pod
}

// arrive places a pod, which is assumed at first.
func (w *choices) arrive(t *testing.T) {
	pod := w.newPod()
	w.handle.knows(pod)
	name := w.place(t, pod, nil)
	if name == "" {
		return
	}
	reserve(t, w.Plugin, pod, name)
	for _, info := range w.handle.snapshot {
		if info.Node().Name == name {
			bound := pod.DeepCopy()
			bound.Spec.NodeName = name
			info.(*fakeNode).add(bound)
			w.assumed[pod] = info.(*fakeNode)
		}
	}
}

// confirm replaces an assumed pod by the one that the API server has.
func (w *choices) confirm(t *testing.T) {
	for pod, info := range w.assumed {
		info.remove(pod)
		if _, placed := w.ledger.Get(pod.UID); placed {
			bind(t, w.ledger, info, pod)
		}
		delete(w.assumed, pod)
		return
	}
}

// update changes a node's CPU, its taints, its extended resources or the health of a GPU.
func (w *choices) update(t *testing.T, n *fakeNode) {
	node := n.node.DeepCopy()
	switch w.random.IntN(4) {
	case 0:
		node.Status.Allocatable[v1.ResourceCPU] = *resource.NewQuantity(int64(w.random.IntN(12)), resource.DecimalSI) // less than is requested, maybe
	case 1:
		node.Spec.Unschedulable = !node.Spec.Unschedulable
	case 2:
		node.Status.Allocatable[kube.ResourceVGPU] = *resource.NewQuantity(int64(w.random.IntN(3)), resource.DecimalSI)
	case 3:
		inv, _, err := kube.InventoryOf(node)
		if err != nil {
			t.Fatal(err)
		}
		one := &inv.Slices[w.random.IntN(len(inv.Slices))]
		one.Healthy = !one.Healthy
		text, err := kube.EncodeInventory(inv)
		if err != nil {
			t.Fatal(err)
		}
		node.Annotations[kube.AnnotationInventory] = text
	}
	n.node, n.generation = node, generations.Add(1)
}

// refuses reports whether the stock filters refuse a node, by what prechecks read.
func (w *choices) refuses(t *testing.T, pod *v1.Pod, i int) bool {
	check := newPrecheck(pod, &w.podInfos.get(pod).Pod, w.handle.snapshot)
	return !check.passes(i) || !check.hasResources(i)
}

// place schedules a pod as the scheduler does: again, with more nodes, as long as PostFilter says so. More nodes may be refused than stock filters do.
func (w *choices) place(t *testing.T, pod *v1.Pod, refused map[string]bool) string {
	t.Helper()
	w.breadths.cautious = min(w.breadths.cautious, w.random.IntN(3)) // else few pods would be filtered on the best node alone
	all := maps.Clone(refused)
	if all == nil {
		all = map[string]bool{}
	}
	for i, info := range w.handle.snapshot {
		all[info.Node().Name] = all[info.Node().Name] || w.refuses(t, pod, i)
	}
	for range 4 {
		name := winner(t, w.Plugin, pod, all)
		state, result := prefilter(t, w.Plugin, pod)
		if name != "" || result.AllNodes() {
			return name
		}
		w.retried++
		if _, status := w.PostFilter(t.Context(), state, pod, nil); status.Code() != fwk.UnschedulableAndUnresolvable {
			t.Fatalf("%s is not tried again: %v", pod.Name, status)
		}
	}
	t.Fatalf("%s is tried again without end", pod.Name)
	return ""
}

// compare schedules a pod with this plugin and with a new one.
func (w *choices) compare(t *testing.T) {
	t.Helper()
	pod := w.newPod()
	w.handle.knows(pod)
	refused := map[string]bool{}
	if w.random.IntN(2) == 0 { // by a plugin that nobody knows
		for _, info := range w.handle.snapshot {
			refused[info.Node().Name] = w.random.IntN(2) == 0
		}
	}
	before := slices.Clone(w.fleet.generations)
	got := w.place(t, pod, refused)
	for i := range before {
		if i < len(w.fleet.generations) && before[i] != w.fleet.generations[i] && w.fleet.ranks.Version(i) != w.fleet.generations[i] {
			w.kept++
		}
	}
	w.breadths.remove(pod.UID)

	fresh := newPlugin(t, w.handle, 0)
	fresh.ledger = w.ledger
	state, _ := prefilter(t, fresh, pod)
	fresh.fleet.packer = w.fleet.packer
	fresh.fleet.ranks.SetPacker(w.fleet.packer)
	var scores fwk.NodeScoreList
	for i, info := range w.handle.snapshot {
		name := info.Node().Name
		if refused[name] || w.refuses(t, pod, i) || !fresh.Filter(t.Context(), state, pod, info).IsSuccess() {
			continue
		}
		score, _ := fresh.Score(t.Context(), state, pod, info)
		scores = append(scores, fwk.NodeScore{Name: name, Score: score})
	}
	want := ""
	if fresh.NormalizeScore(t.Context(), state, pod, scores); len(scores) > 0 {
		want = slices.MaxFunc(scores, func(a, b fwk.NodeScore) int { return int(a.Score - b.Score) }).Name
	}
	if got != want {
		t.Fatalf("pod %s: %q, a fresh plugin %q", pod.Name, got, want)
	}
}

// A pod that only its share decides about is filtered on the best node; others on more.
func TestBreadth(t *testing.T) {
	node := func(name string) *fakeNode {
		n := gpuNode(t, name, 1)
		inv, _, err := kube.InventoryOf(n)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(n.Status.Allocatable, kube.NodeResources(inv))
		return newNodeInfo(n)
	}
	volume := func(v v1.VolumeSource) edit {
		return func(pod *v1.Pod) { pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{VolumeSource: v}) }
	}
	for name, tt := range map[string]struct {
		edit   edit
		handle func(*fakeHandle)
		want   breadth
	}{
		"plain":         {edit: func(*v1.Pod) {}, want: bestNode},
		"configuration": {edit: volume(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}), want: bestNode},
		"storage":       {edit: volume(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}), want: candidates},
		"port":          {edit: func(pod *v1.Pod) { pod.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 1}} }, want: candidates},
		"spread": {edit: func(pod *v1.Pod) {
			pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{WhenUnsatisfiable: v1.DoNotSchedule}}
		}, want: candidates},
		"claims":                 {edit: func(pod *v1.Pod) { pod.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "c"}} }, want: candidates},
		"affinity":               {edit: func(pod *v1.Pod) { pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{}} }, want: candidates},
		"somebody repels others": {edit: func(*v1.Pod) {}, handle: func(h *fakeHandle) { h.repelling = h.snapshot[:1] }, want: candidates},
		"the best is kept for another": {edit: func(*v1.Pod) {}, handle: func(h *fakeHandle) {
			h.nominated = []*v1.Pod{gpuPod("nominee", 1, 1, func(pod *v1.Pod) { pod.Status.NominatedNodeName = "n1" })}
		}, want: candidates},
		"the best lacks a resource": {edit: func(*v1.Pod) {}, handle: func(h *fakeHandle) {
			delete(h.snapshot[0].Node().Status.Allocatable, kube.ResourceVGPU)
		}, want: candidates},
		"none fits": {edit: func(pod *v1.Pod) { pod.Spec.NodeSelector = map[string]string{"no": "where"} }, want: allNodes},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandle(node("n1"), node("n2"), node("n3"))
			if tt.handle != nil {
				tt.handle(h)
			}
			p := newPlugin(t, h, 2)
			state, result := prefilter(t, p, gpuPod("a", 50, 50, tt.edit))
			c, _ := p.cycleOf(state)
			if want := []int{1, 2, 0}[tt.want]; c.breadth != tt.want || result.AllNodes() != (want == 0) || want > 0 && result.NodeNames.Len() != want {
				t.Errorf("breadth %d, nodes %v; want breadth %d", c.breadth, result, tt.want)
			}
		})
	}
}

// A pod that other plugins refuse goes on from the best node to the candidates, and to all nodes.
func TestBreadthGrows(t *testing.T) {
	w := newChoices(t, 1)
	pod := gpuPod("a", 25, 25)
	w.handle.knows(pod)
	for _, want := range []breadth{bestNode, candidates, allNodes} {
		state, _ := prefilter(t, w.Plugin, pod)
		if c, _ := w.cycleOf(state); c.breadth != want {
			t.Errorf("breadth %d, want %d", c.breadth, want)
		}
		w.PostFilter(t.Context(), state, pod, nil)
	}
	if n := len(w.handle.activated); n != 2 {
		t.Errorf("activated %d times, want 2: the last refusal is for preemption", n)
	}
}

// Once the best node was refused, so many pods start with more nodes.
func TestRefusalMakesCautious(t *testing.T) {
	w := newChoices(t, 1)
	schedule := func(name string) (fwk.CycleState, *v1.Pod, breadth) {
		pod := gpuPod(name, 25, 25)
		w.handle.knows(pod)
		state, _ := prefilter(t, w.Plugin, pod)
		c, _ := w.cycleOf(state)
		return state, pod, c.breadth
	}
	state, pod, _ := schedule("refused")
	w.PostFilter(t.Context(), state, pod, nil)
	for i := range afterRefusal {
		if _, _, at := schedule("later"); at != candidates {
			t.Fatalf("pod %d after the refusal: breadth %d, want %d", i, at, candidates)
		}
	}
	if _, _, at := schedule("last"); at != bestNode {
		t.Errorf("in the end: breadth %d, want %d", at, bestNode)
	}
}
