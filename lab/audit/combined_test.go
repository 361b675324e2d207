package audit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestAllFeaturesTogether lets pods with anti-affinity, wishes, shared weights, class swap and kinds of slices come and go. Scheduler and checker agree
// on the nodes that take each, the agent grants what was placed, and the checker finds nothing wrong.
func TestAllFeaturesTogether(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(20) {
		w := newMixedWorld(t, seed)
		for step := range 60 {
			if len(w.pods) > 0 && w.random.IntN(4) == 0 {
				w.end(w.random.IntN(len(w.pods)))
				continue
			}
			pod := mixedPod(w.random, fmt.Sprint("p", step))
			said := nodeview.PodRequestOf(pod)
			if said.RequestErr != nil {
				continue
			}
			node, plan, names := w.place(pod, &said.Pod)
			r := Check(w.nodes, w.pods, w.options)
			if len(r.Violations) > 0 {
				t.Fatalf("seed %d, step %d: %+v", seed, step, r.Violations)
			}
			if audited := r.Admissible(*pod); !slices.Equal(audited, names) {
				t.Fatalf("seed %d, step %d: audit %v, packer %v: %+v", seed, step, audited, names, said.Pod.Request)
			}
			if node != nil {
				w.bind(pod, said, node, plan)
				seen["class "+string(plan[0][0].Class)]++
				seen["key "+said.Pod.Request.AntiAffinity]++
			}
		}
	}
	for _, of := range []string{"class swap", "class exclusive", "class mps", "key x", "key y"} {
		if seen[of] < 50 {
			t.Errorf("the test is of little use: %v", seen)
		}
	}
}

// mixedWorld is a cluster of three nodes of different slices, with the books of their agents.
type mixedWorld struct {
	*cluster
	random  *rand.Rand
	options Options
	books   map[string]*grant.Book
}

func newMixedWorld(t *testing.T, seed uint64) *mixedWorld {
	w := &mixedWorld{cluster: newCluster(t), random: rand.New(rand.NewPCG(seed, 5)), books: map[string]*grant.Book{}}
	w.options = Options{GammaPercent: 150, MixTenants: seed%2 == 0}
	for n := range 3 {
		var list []kube.Slice
		for i := range 1 + w.random.IntN(4) {
			s := gpu(fmt.Sprintf("n%d-%d", n, i))
			if w.random.IntN(2) == 0 {
				s = mig(s.ID, fmt.Sprintf("n%d-d%d", n, w.random.IntN(2)))
			}
			s.Store, s.MaxShares = w.random.IntN(2) == 0, 2+w.random.IntN(4)
			if w.random.IntN(2) == 0 {
				s.Classes, s.Swap = append(s.Classes, share.Swap), &kube.Swap{HostMiB: 4000, KeptMiB: 300}
			}
			list = append(list, s)
		}
		w.node(fmt.Sprint("n", n), list...)
		w.nodes[n].Status.Allocatable[kube.ResourceSMTime] = resource.MustParse("100000000") // of class swap more than there is may be promised
		w.nodes[n].Status.Allocatable[kube.ResourceMemory] = resource.MustParse("100000000")
		b := grant.NewBook(w.nodes[n].Name)
		b.SetSlices(grant.Slices{All: w.slicesOf(n)})
		w.books[w.nodes[n].Name] = b
	}
	return w
}

func (w *mixedWorld) slicesOf(node int) []packing.Slice {
	inventory, _, err := kube.InventoryOf(&w.nodes[node])
	if err != nil {
		w.t.Fatal(err)
	}
	rules := kube.DefaultRules()
	rules.GammaPercent, rules.MixTenants = w.options.GammaPercent, w.options.MixTenants
	inventory.Rules = &rules
	return nodeview.Slices(inventory)
}

// place returns the best node for the pod, nil if there is none, the plan there, and the names of all nodes that take it.
func (w *mixedWorld) place(pod *v1.Pod, asked *packing.Pod) (best *packing.Node, bestPlan packing.Plan, names []string) {
	model := packing.Slots
	if pod.Spec.SchedulerName == rectangleScheduler {
		model = packing.Rectangles
	}
	packer := packing.Packer{Rules: packing.NewRules(model), Ranker: []packing.Ranker{
		packing.Balance{Demand: &packing.Demand{}}, packing.DiluWeights, packing.BestArea{},
	}[w.random.IntN(3)]}
	var bestRank packing.Rank
	for i := range w.nodes {
		n := packing.NewNode(w.nodes[i].Name, w.slicesOf(i), 1<<40, 1<<50)
		d := &nodeview.OccupancyBuilder{Node: n, Packer: packer, PodRequest: nodeview.PodRequestOf}
		for k := range w.pods {
			if w.pods[k].Spec.NodeName == n.Name {
				d.AddPod(&w.pods[k])
			}
		}
		if err := d.Build(); err != nil {
			w.t.Fatal(err)
		}
		plan, rank, refusal := packer.Place(n, asked)
		if refusal != packing.Admitted {
			continue
		}
		if names = append(names, n.Name); best == nil || rank < bestRank {
			best, bestPlan, bestRank = n, plan, rank
		}
	}
	return best, bestPlan, names
}

// bind gives the pod its placement, and has the agent grant it. Pods of class swap may have to await their turn.
func (w *mixedWorld) bind(pod *v1.Pod, said *nodeview.PodRequest, node *packing.Node, plan packing.Plan) {
	request := said.Pod.Request
	p := kube.Placement{Node: node.Name, UID: pod.UID, Model: kube.Slots, Weights: request.Weights, AntiAffinity: request.AntiAffinity}
	if pod.Spec.SchedulerName == rectangleScheduler {
		p.Model = kube.Rectangles
	}
	for c, picks := range plan {
		placed := kube.PlacedContainer{Name: request.Containers[c].Name}
		for _, pick := range picks {
			placed.VGPUs = append(placed.VGPUs, kube.PlacedVGPU{
				Slice: string(node.Slices[pick.Slice].ID), Class: pick.Class, Priority: request.Priority, Share: request.Containers[c].Share,
			})
		}
		p.Containers = append(p.Containers, placed)
	}
	pod.Spec.NodeName = node.Name
	w.cluster.place(pod, p)
	for _, c := range p.Containers {
		var deviceIDs []string
		for v := range c.VGPUs {
			deviceIDs = append(deviceIDs, fmt.Sprint(pod.Name, c.Name, v))
		}
		_, _, refusal := w.books[node.Name].Admit(grant.Claim{Pod: pod, Container: c.Name, DeviceIDs: deviceIDs}, time.Unix(0, 0))
		if refusal != nil && refusal.Reason != grant.AwaitsTurn {
			w.t.Fatalf("the agent refuses %+v: %v", p, refusal)
		}
	}
	w.pods = append(w.pods, *pod)
}

func (w *mixedWorld) end(i int) {
	pod := &w.pods[i]
	for _, c := range pod.Spec.Containers {
		w.books[pod.Spec.NodeName].Release(grant.Owner{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Container: c.Name}.ID())
	}
	w.pods = slices.Delete(w.pods, i, i+1)
}

// mixedPod has up to three containers, and annotations that may contradict each other.
func mixedPod(random *rand.Rand, name string) *v1.Pod {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: []string{"a", "a", "b"}[random.IntN(3)], Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{},
	}}
	for _, list := range [][]string{
		{kube.AnnotationPacking, "", "binpack", "spread"}, {kube.AnnotationAntiAffinity, "", "", "x", "y"},
		{kube.AnnotationIsolation, "", "", "swap", "swap", "exclusive", "mps"}, {kube.AnnotationSlice, "", "", "mig", "1g.5gb"},
		{kube.AnnotationWeights, "", "", "sha256:" + strings.Repeat("a", 64) + "=1000Mi"},
	} {
		pod.Annotations[list[0]] = list[1+random.IntN(len(list)-1)]
	}
	if random.IntN(4) == 0 {
		pod.Spec.SchedulerName = rectangleScheduler
	}
	for i := range 1 + max(0, random.IntN(4)-1) {
		vgpus, sm, quota := int64(1+random.IntN(5)/4), int64(10+random.IntN(60)), int64(100)
		switch random.IntN(5) {
		case 0:
			sm = 100
		case 1, 2:
			vgpus, quota = 1, int64(10+random.IntN(80))
		}
		limits := v1.ResourceList{
			kube.ResourceSM: number(sm * vgpus), kube.ResourceVGPU: number(vgpus), kube.ResourceQuota: number(quota),
			kube.ResourceMemory: number([]int64{100, 1500, 4000, 20000, 39000}[random.IntN(5)] * vgpus),
		}
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Resources: v1.ResourceRequirements{Limits: limits}})
		if random.IntN(6) == 0 {
			pod.Annotations[kube.AnnotationContainerSlice+fmt.Sprint("c", i)] = []string{share.WholeGPU, share.AnyMIG}[random.IntN(2)]
		}
	}
	kube.Complete(pod)
	return pod
}
