package rebalanceview

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/rebalance"
	"github.com/gshare-dev/gshare/vgpu/share"
)

var digest = "sha256:" + strings.Repeat("a", 64)

func gpuNode(t *testing.T, name string, gpus int) *v1.Node {
	t.Helper()
	var inv kube.Inventory
	for i := range gpus {
		id := fmt.Sprintf("GPU-%s-%d", name, i)
		inv.Slices = append(inv.Slices, kube.Slice{
			ID: id, Device: id, Model: "A100", SMs: 108, MemoryMiB: 40960, Healthy: true, MaxShares: 16,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic},
		})
	}
	text, err := kube.EncodeInventory(inv)
	if err != nil {
		t.Fatal(err)
	}
	has := kube.NodeResources(inv)
	has[v1.ResourceCPU], has[v1.ResourceMemory], has[v1.ResourcePods] = resource.MustParse("32"), resource.MustParse("128Gi"), resource.MustParse("20")
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{kube.AnnotationInventory: text}},
		Status:     v1.NodeStatus{Allocatable: has},
	}
}

// gpuPod requests a part of one GPU, in percent; it has agreed and has a ReplicaSet.
func gpuPod(name string, sm int64) *v1.Pod {
	limits := v1.ResourceList{kube.ResourceSM: *resource.NewQuantity(sm, resource.DecimalSI), kube.ResourceMemory: resource.MustParse("1000")}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ml", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name},
			Annotations:     map[string]string{kube.AnnotationRebalance: kube.RebalanceAllow},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true)}},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: limits}}}},
	}
	kube.Complete(pod)
	return pod
}

// runs places the pod on a GPU of a node.
func runs(t *testing.T, pod *v1.Pod, node string, gpu int) *v1.Pod {
	t.Helper()
	request, _, err := kube.RequestOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	text, err := kube.EncodePlacement(kube.Placement{Node: node, UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: "main", VGPUs: []kube.PlacedVGPU{{
			Slice: fmt.Sprintf("GPU-%s-%d", node, gpu), Class: share.MPS, Priority: share.BestEffort, Share: request.Containers[0].Share,
		}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	pod.Spec.NodeName = node
	pod.Annotations[kube.AnnotationPlacement] = text
	return pod
}

func budget(allowed int32, generation, observed int64) *policy.PodDisruptionBudget {
	return &policy.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "b", Generation: generation},
		Spec:       policy.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "small"}}},
		Status:     policy.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, ObservedGeneration: observed},
	}
}

// TestWhoMoves: a small pod moves to the GPU of a larger one that stays, unless something keeps it.
func TestWhoMoves(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(o *Objects, small *v1.Pod)
		want   Reason // empty: it moves
		still  bool   // it may move, and does not
	}{
		"agreed":       {func(*Objects, *v1.Pod) {}, "", false},
		"says nothing": {func(_ *Objects, p *v1.Pod) { delete(p.Annotations, kube.AnnotationRebalance) }, NotAgreed, false},
		"presumed willing": {func(o *Objects, p *v1.Pod) {
			delete(p.Annotations, kube.AnnotationRebalance)
			o.Willing = func(n string) bool { return n == "ml" }
		}, "", false},
		"namespace agrees": {func(o *Objects, p *v1.Pod) {
			delete(p.Annotations, kube.AnnotationRebalance)
			o.Namespaces[0].Annotations[kube.AnnotationRebalance] = "allow"
		}, "", false},
		"against its namespace": {func(o *Objects, p *v1.Pod) {
			p.Annotations[kube.AnnotationRebalance] = "never"
			o.Namespaces[0].Annotations[kube.AnnotationRebalance] = "allow"
		}, Refused, false},
		"unknown value":   {func(_ *Objects, p *v1.Pod) { p.Annotations[kube.AnnotationRebalance] = "yes" }, Refused, false},
		"no owner":        {func(_ *Objects, p *v1.Pod) { p.OwnerReferences = nil }, NoOwner, false},
		"another profile": {func(_ *Objects, p *v1.Pod) { p.Spec.SchedulerName = "gshare-complementary" }, Foreign, false},
		"DaemonSet":       {func(_ *Objects, p *v1.Pod) { p.OwnerReferences[0].Kind = "DaemonSet" }, NoOwner, false},
		"terminating":     {func(_ *Objects, p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, Terminating, false},
		"volume": {func(_ *Objects, p *v1.Pod) {
			p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}}}
		}, Requirements, false},
		"host port":          {func(_ *Objects, p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} }, Requirements, false},
		"spread":             {func(_ *Objects, p *v1.Pod) { p.Spec.TopologySpreadConstraints = make([]v1.TopologySpreadConstraint, 1) }, Requirements, false},
		"anti-affinity":      {func(_ *Objects, p *v1.Pod) { p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{}} }, Requirements, false},
		"filtered":           {func(o *Objects, p *v1.Pod) { o.Evictable = func(*v1.Pod) bool { return false } }, Filtered, false},
		"budget":             {func(o *Objects, _ *v1.Pod) { o.Budgets = append(o.Budgets, budget(1, 2, 2)) }, "", false},
		"budget used up":     {func(o *Objects, _ *v1.Pod) { o.Budgets = append(o.Budgets, budget(0, 2, 2)) }, "", true},
		"budget out of date": {func(o *Objects, _ *v1.Pod) { o.Budgets = append(o.Budgets, budget(1, 2, 1)) }, "", true},
		"two budgets":        {func(o *Objects, _ *v1.Pod) { o.Budgets = append(o.Budgets, budget(1, 2, 2), budget(1, 2, 2)) }, TwoBudgets, false},
		"node selector":      {func(_ *Objects, p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }, "", true},
		"taint": {func(o *Objects, _ *v1.Pod) {
			o.Nodes[1].Spec.Taints = []v1.Taint{{Key: "a", Effect: v1.TaintEffectNoSchedule}}
		}, "", true},
		"cordoned":          {func(o *Objects, _ *v1.Pod) { o.Nodes[1].Spec.Unschedulable = true }, "", true},
		"no room for a pod": {func(o *Objects, _ *v1.Pod) { o.Nodes[1].Status.Allocatable[v1.ResourcePods] = resource.MustParse("1") }, "", true},
		"another namespace": {func(_ *Objects, p *v1.Pod) { p.Namespace = "web" }, "", true},
		"key added":         {func(_ *Objects, p *v1.Pod) { p.Annotations[kube.AnnotationAntiAffinity] = "x" }, Changed, false},
		"weights added":     {func(_ *Objects, p *v1.Pod) { p.Annotations[kube.AnnotationWeights] = digest + "=10Mi" }, Changed, false},
		"resized":           {func(o *Objects, p *v1.Pod) { p.Annotations[kube.AnnotationSMLimit] = "90" }, Changed, false},
		"forged placement":  {func(_ *Objects, p *v1.Pod) { p.UID = "other" }, Untrusted, false},
	} {
		t.Run(name, func(t *testing.T) {
			small, large := runs(t, gpuPod("small", 30), "a", 0), runs(t, gpuPod("large", 60), "b", 0)
			large.OwnerReferences = nil
			o := Objects{
				Nodes: []*v1.Node{gpuNode(t, "a", 1), gpuNode(t, "b", 1)}, Pods: []*v1.Pod{small, large}, Scheduler: kube.SchedulerName,
				Namespaces: []*v1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "ml", Annotations: map[string]string{}}}},
			}
			tc.change(&o, small)
			v := New(o)
			plan := rebalance.Free(&v.Cluster, rebalance.Limits{Moves: 9})
			if moves := len(plan.Moves) > 0; moves != (tc.want == "" && !tc.still) {
				t.Errorf("%+v, %v", plan, v.Fixed)
			}
			if tc.want != "" && v.Fixed[tc.want] == 0 {
				t.Errorf("stays: %v, want %q", v.Fixed, tc.want)
			}
			if tc.want == "" && !slices.Contains(v.Of, small) {
				t.Errorf("stays: %v", v.Fixed)
			}
		})
	}
}

// TestPlacedKeysCount: an anti-affinity key counts as a pod was placed with it, whatever its annotation says now.
func TestPlacedKeysCount(t *testing.T) {
	small, large := runs(t, gpuPod("small", 30), "a", 0), runs(t, gpuPod("large", 60), "b", 0)
	for pod, now := range map[*v1.Pod]string{small: "x", large: ""} {
		p, _, err := kube.PlacementOf(pod)
		if err != nil {
			t.Fatal(err)
		}
		p.AntiAffinity = "x"
		if pod.Annotations[kube.AnnotationPlacement], err = kube.EncodePlacement(p); err != nil {
			t.Fatal(err)
		}
		pod.Annotations[kube.AnnotationAntiAffinity] = now
	}
	v := New(Objects{Nodes: []*v1.Node{gpuNode(t, "a", 1), gpuNode(t, "b", 1)}, Pods: []*v1.Pod{small, large}, Scheduler: kube.SchedulerName})
	if plan := rebalance.Free(&v.Cluster, rebalance.Limits{Moves: 9}); len(plan.Moves) > 0 || v.Fixed[Changed] != 1 {
		t.Errorf("%+v, %v", plan, v.Fixed)
	}
}

// TestWaitingPods: pods that wait come by priority and age, without those that no or another scheduler tries to place, and one is let in by
// moving a small pod.
func TestWaitingPods(t *testing.T) {
	small, large := runs(t, gpuPod("small", 30), "a", 0), runs(t, gpuPod("large", 60), "b", 0)
	low, high, other := gpuPod("low", 100), gpuPod("high", 100), gpuPod("other", 100)
	high.Spec.Priority = new(int32(5))
	other.Spec.SchedulerName = "mine"
	gated := gpuPod("gated", 100)
	gated.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/quota"}}
	v := New(Objects{
		Nodes: []*v1.Node{gpuNode(t, "a", 1), gpuNode(t, "b", 1)}, Pods: []*v1.Pod{small, large, gated, low, other, high}, Scheduler: kube.SchedulerName,
	})
	if !slices.Equal(v.Waiting, []*v1.Pod{high, low}) {
		t.Fatalf("%d wait", len(v.Waiting))
	}
	plan, ok := v.Admit(high, rebalance.Limits{Moves: 1})
	if !ok || len(plan.Moves) != 1 || v.Of[plan.Moves[0].Pod] != small || v.Nodes[plan.Node].Name != "a" {
		t.Errorf("%v %+v", ok, plan)
	}
	high.Spec.NodeSelector = map[string]string{"a": "b"}
	if plan, ok := v.Admit(high, rebalance.Limits{Moves: 1}); ok {
		t.Errorf("%+v for a pod that selects other nodes", plan)
	}
}

// TestUntrustedNode: nobody comes to a node where a pod uses GPUs that nobody knows, and nobody leaves it.
func TestUntrustedNode(t *testing.T) {
	unknown := gpuPod("unknown", 30)
	unknown.Spec.NodeName = "b"
	unknown.Annotations[kube.AnnotationPlacement] = "{"
	v := New(Objects{
		Nodes: []*v1.Node{gpuNode(t, "a", 2), gpuNode(t, "b", 1)}, Scheduler: kube.SchedulerName,
		Pods: []*v1.Pod{runs(t, gpuPod("x", 30), "a", 0), runs(t, gpuPod("y", 30), "b", 0), unknown},
	})
	if plan := rebalance.Free(&v.Cluster, rebalance.Limits{Moves: 9}); len(plan.Moves) > 0 || len(v.Pods) != 1 || v.Fixed[Untrusted] != 2 {
		t.Errorf("%+v, %v", plan, v.Fixed)
	}
}

// TestRulesOfEachNode: a pod of another namespace is let in where the node mixes namespaces, and where only another node does, not.
func TestRulesOfEachNode(t *testing.T) {
	for name, tc := range map[string]struct {
		mixes string
		fits  bool
	}{"this node": {"a", true}, "another node": {"b", false}, "no node": {"", false}} {
		t.Run(name, func(t *testing.T) {
			nodes := []*v1.Node{gpuNode(t, "a", 1), gpuNode(t, "b", 0)}
			for _, n := range nodes {
				inv, _, err := kube.InventoryOf(n)
				rules := kube.DefaultRules()
				rules.MixTenants = n.Name == tc.mixes
				inv.Rules = &rules
				text, encodeErr := kube.EncodeInventory(inv)
				if err := errors.Join(err, encodeErr); err != nil {
					t.Fatal(err)
				}
				n.Annotations[kube.AnnotationInventory] = text
			}
			waits := gpuPod("waits", 30)
			waits.Namespace = "web"
			waits.Spec.SchedulerName = kube.SchedulerName
			v := New(Objects{Nodes: nodes, Pods: []*v1.Pod{runs(t, gpuPod("x", 30), "a", 0), waits}, Scheduler: kube.SchedulerName})
			if _, fits := v.Admit(waits, rebalance.Limits{}); fits != tc.fits {
				t.Errorf("fits: %v, want %v", fits, tc.fits)
			}
		})
	}
}
