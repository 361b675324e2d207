package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestAgreesWithPacker compares Admissible with the scheduler's own rules on random clusters. Two programs that were
// written apart must give one answer.
func TestAgreesWithPacker(t *testing.T) {
	asked, admitted, withWeights, withKey, keptOff := 0, 0, 0, 0, 0
	for seed := range uint64(60) {
		f := fillRandomly(t, seed)
		for i := 0; i < len(f.cluster.pods); i += 2 { // room for others
			f.cluster.pods[i].Status.Phase = v1.PodFailed
		}
		for i := 1; i < len(f.cluster.pods); i += 4 { // which take memory and a place, and leave their SM-time
			lower(&f.cluster.pods[i])
		}
		f.loadWeights()
		f.loadKeys()
		f.advertise()
		r := f.check()
		for range 30 {
			pod := randomPod(f)
			mine, theirs := r.Admissible(pod), f.packerAdmits(pod)
			if !slices.Equal(mine, theirs) {
				t.Fatalf("seed %d, %+v: audit %v, packer %v", seed, pod.Spec.Containers, mine, theirs)
			}
			asked += len(f.nodes)
			admitted += len(mine)
			if pod.Annotations[kube.AnnotationWeights] != "" {
				withWeights += len(mine)
			}
			if pod.Annotations[kube.AnnotationAntiAffinity] != "" {
				withKey += len(mine)
				delete(pod.Annotations, kube.AnnotationAntiAffinity)
				keptOff += len(f.packerAdmits(pod)) - len(mine)
			}
		}
	}
	t.Logf("%d of %d questions were answered with yes, %d of them about pods with weights and %d about pods with a key, which kept pods off %d nodes",
		admitted, asked, withWeights, withKey, keptOff)
	if withWeights < 100 || withKey < 100 || keptOff < 100 {
		t.Errorf("%d nodes take pods with weights, %d pods with a key, %d not for their key: the test is of little use", withWeights, withKey, keptOff)
	}
}

// loadWeights gives most nodes a model store, and lets most of the pods there use some of two weights, which fit every slice.
func (f *filler) loadWeights() {
	store := map[string]bool{}
	for i := range f.nodes {
		if node := &f.nodes[i]; f.random.IntN(4) > 0 {
			node.Annotations[kube.AnnotationInventory] = strings.ReplaceAll(node.Annotations[kube.AnnotationInventory], `"sms":`, `"store":true,"sms":`)
			store[node.Name] = true
		}
	}
	for i := range f.cluster.pods {
		if pod := &f.cluster.pods[i]; store[pod.Spec.NodeName] {
			f.edit(pod, func(p *kube.Placement) { p.Weights = f.someWeights(1500, 2000) })
		}
	}
}

// loadKeys gives some pods one of two anti-affinity keys.
func (f *filler) loadKeys() {
	for i := range f.cluster.pods {
		if pod := &f.cluster.pods[i]; pod.Spec.NodeName != "" && f.random.IntN(3) == 0 {
			f.edit(pod, func(p *kube.Placement) { p.AntiAffinity = []string{"x", "y"}[f.random.IntN(2)] })
		}
	}
}

// someWeights returns some of the weights with these sizes in MiB, which are also their names.
func (f *filler) someWeights(mib ...share.Bytes) (list []share.Weights) {
	for _, size := range mib {
		if f.random.IntN(2) == 0 {
			list = append(list, share.Weights{Digest: share.Digest(fmt.Sprintf("sha256:%064d", size)), Memory: size * share.MiB})
		}
	}
	return list
}

// lower makes a bound pod an instance of a function that has given up its SM-time.
func lower(pod *v1.Pod) {
	const shared = `{"v":1,"residency":{"seq":2,"level":"Shared"}}`
	pod.Annotations[kube.AnnotationResidency], pod.Annotations[kube.AnnotationResidencyReached] = shared, shared
}

// advertise sets the resources of the nodes as their agents would.
func (f *filler) advertise() {
	for i := range f.nodes {
		inventory, _, _ := kube.InventoryOf(&f.nodes[i])
		var here []*v1.Pod
		for k := range f.cluster.pods {
			if pod := &f.cluster.pods[k]; pod.Spec.NodeName == f.nodes[i].Name {
				here = append(here, pod)
			}
		}
		for name, quantity := range kube.NodeResources(inventory, here...) {
			f.nodes[i].Status.Allocatable[name] = quantity
		}
	}
}

func randomPod(f *filler) v1.Pod {
	var specs []spec
	vgpus := 1 + f.random.Int64N(2)
	for range 1 + f.random.IntN(3) {
		s := spec{name: "w", sm: 1 + f.random.Int64N(70), quota: 100, vgpus: vgpus}
		if vgpus == 1 {
			s.quota = 1 + f.random.Int64N(70)
		}
		s.memory = []int64{1, 1, 1000, 36000, 37500, 39000}[f.random.IntN(6)]
		specs = append(specs, s)
	}
	if f.random.IntN(8) == 0 {
		specs[0].tenant = "other"
	}
	pod := together(f.cluster, specs...)
	if f.random.IntN(2) == 0 {
		pod.Spec.SchedulerName = rectangleScheduler
	}
	var weights []string
	for _, w := range f.someWeights(1500, 2000, 3000) {
		weights = append(weights, fmt.Sprintf("%s=%dMi", w.Digest, w.Memory/share.MiB))
	}
	pod.Annotations[kube.AnnotationWeights] = strings.Join(weights, ",")
	pod.Annotations[kube.AnnotationAntiAffinity] = []string{"", "x"}[f.random.IntN(2)]
	for i := range pod.Spec.Containers {
		if f.random.IntN(8) == 0 {
			pod.Annotations[kube.AnnotationContainerSlice+pod.Spec.Containers[i].Name] = []string{share.WholeGPU, share.AnyMIG, "1g.5gb"}[f.random.IntN(3)]
		}
		delete(pod.Spec.Containers[i].Resources.Requests, v1.ResourceCPU)
	}
	return pod
}

type anyRank struct{}

func (anyRank) Rank(*packing.Node, *packing.Pod, []packing.Choice) packing.Rank { return 0 }

func (f *filler) packerAdmits(pod v1.Pod) []string {
	model := packing.Slots
	if pod.Spec.SchedulerName == rectangleScheduler {
		model = packing.Rectangles
	}
	packer := packing.Packer{Rules: packing.NewRules(model), Ranker: anyRank{}}
	request, _, err := kube.RequestOf(&pod)
	if err != nil {
		f.t.Fatal(err)
	}
	var names []string
	for i := range f.nodes {
		n := f.packerNode(&f.nodes[i])
		if _, _, refusal := packer.Place(n, &packing.Pod{Tenant: pod.Namespace, Request: request}); refusal == packing.Admitted {
			names = append(names, n.Name)
		}
	}
	return names
}

func (f *filler) packerNode(object *v1.Node) *packing.Node {
	inventory, _, _ := kube.InventoryOf(object)
	var on []packing.Slice
	for _, s := range inventory.Slices {
		on = append(on, packing.Slice{
			ID: packing.SliceID(s.ID), Device: s.Device, Model: s.Model, Profile: s.Profile, SMs: s.SMs,
			Memory: share.Bytes(s.MemoryMiB) * share.MiB, Classes: s.Classes, Healthy: s.Healthy, Reserve: s.Reserve, MaxShares: s.MaxShares,
			Store: s.Store,
		})
	}
	n := packing.NewNode(object.Name, on, 1<<40, 1<<50)
	for i := range f.cluster.pods {
		pod := &f.cluster.pods[i]
		p, placed, _ := kube.PlacementOf(pod)
		if !placed || hasEnded(pod) || p.Node != n.Name {
			continue
		}
		v := firstVGPU(&p)
		at, _ := n.SliceIndex(packing.SliceID(v.Slice))
		w, r, _ := kube.ResidencyOf(pod)
		counted := residency.Counted(w, r).Charge(v.Share, v.Share.Memory)
		n.Loads[at].Add(packing.Resident{Tenant: pod.Namespace, Model: packing.Model(p.Model), Class: v.Class, Share: counted, Weights: p.Weights,
			AntiAffinity: p.AntiAffinity})
	}
	return n
}
