package rebalancing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	kubetest "k8s.io/client-go/testing"
	"sigs.k8s.io/descheduler/pkg/descheduler/evictions"
	"sigs.k8s.io/descheduler/pkg/framework/plugins/defaultevictor"
	frameworktesting "sigs.k8s.io/descheduler/pkg/framework/testing"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func gpuNode(t *testing.T, name string) *v1.Node {
	t.Helper()
	inv := kube.Inventory{Slices: []kube.Slice{{
		ID: "GPU-" + name, Device: "GPU-" + name, Model: "A100", SMs: 108, MemoryMiB: 40960, Healthy: true, MaxShares: 16,
		Classes: []share.Isolation{share.Exclusive, share.MPS},
	}}}
	text, err := kube.EncodeInventory(inv)
	if err != nil {
		t.Fatal(err)
	}
	has := kube.NodeResources(inv)
	has[v1.ResourceCPU], has[v1.ResourceMemory], has[v1.ResourcePods] = resource.MustParse("32"), resource.MustParse("128Gi"), resource.MustParse("20")
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{kube.AnnotationInventory: text}},
		Status:     v1.NodeStatus{Allocatable: has, Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
	}
}

// gpuPod requests a part of a GPU, in percent, and runs on a node if that is named.
func gpuPod(t *testing.T, name string, sm int64, node string) *v1.Pod {
	t.Helper()
	limits := v1.ResourceList{kube.ResourceSM: *resource.NewQuantity(sm, resource.DecimalSI), kube.ResourceMemory: resource.MustParse("1000")}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ml", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Now(), Annotations: map[string]string{kube.AnnotationRebalance: kube.RebalanceAllow},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: name, UID: types.UID("rs-" + name), Controller: new(true)}},
		},
		Spec:   v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: limits}}}},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
	kube.Complete(pod)
	if node == "" {
		return pod
	}
	request, _, err := kube.RequestOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	text, err := kube.EncodePlacement(kube.Placement{Node: node, UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: "main", VGPUs: []kube.PlacedVGPU{{Slice: "GPU-" + node, Class: share.MPS, Priority: share.BestEffort, Share: request.Containers[0].Share}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations[kube.AnnotationPlacement] = text
	pod.Spec.NodeName, pod.Status.Phase = node, v1.PodRunning
	return pod
}

// cycles runs the plugin some times against a client that takes evictions and changes nothing, and returns the names of the evicted pods.
func cycles(t *testing.T, n int, limits *evictions.Options, change func(*Args), objects ...runtime.Object) (evicted []string) {
	t.Helper()
	return cyclesRefusing(t, "", n, limits, change, objects...)
}

// cyclesRefusing does the same with a client that refuses evictions of one pod, which it returns as well.
func cyclesRefusing(t *testing.T, refused string, n int, limits *evictions.Options, change func(*Args), objects ...runtime.Object) (evicted []string) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	client := fake.NewClientset(objects...)
	client.PrependReactor("create", "pods", func(a kubetest.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() == "eviction" {
			name := a.(kubetest.CreateAction).GetObject().(*policy.Eviction).Name
			evicted = append(evicted, name)
			if name == refused {
				return true, nil, apierrors.NewForbidden(v1.Resource("pods"), name, errors.New("by a webhook"))
			}
		}
		return true, nil, nil
	})
	handle, _, err := frameworktesting.InitFrameworkHandle(ctx, client, limits, defaultevictor.DefaultEvictorArgs{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	args := &Args{}
	Default(args)
	if change != nil {
		change(args)
	}
	if err := Validate(args); err != nil {
		t.Fatal(err)
	}
	plugin, err := New(ctx, args, handle)
	if err != nil {
		t.Fatal(err)
	}
	handle.SharedInformerFactoryImpl.Start(ctx.Done())
	handle.SharedInformerFactoryImpl.WaitForCacheSync(ctx.Done())
	var nodes []*v1.Node
	for _, o := range objects {
		if node, ok := o.(*v1.Node); ok && node.Labels["unselected"] == "" {
			nodes = append(nodes, node)
		}
	}
	for range n {
		if status := plugin.(*Plugin).Balance(ctx, nodes); status != nil && status.Err != nil && refused == "" {
			t.Fatal(status.Err)
		}
	}
	return evicted
}

func TestSteps(t *testing.T) {
	a, b := gpuNode(t, "a"), gpuNode(t, "b")
	small, large := gpuPod(t, "small", 30, "a"), gpuPod(t, "large", 60, "b")
	waits := gpuPod(t, "waits", 100, "")
	never := large.DeepCopy()
	never.Annotations[kube.AnnotationRebalance] = kube.RebalanceNever
	gone := gpuPod(t, "gone", 5, "b")
	gone.DeletionTimestamp, gone.Finalizers = &metav1.Time{Time: time.Now()}, []string{"x/y"}
	unselected := a.DeepCopy()
	unselected.Labels = map[string]string{"unselected": "yes"}
	hopeless := gpuPod(t, "hopeless", 100, "")
	hopeless.Spec.NodeSelector = map[string]string{"none": "such"}
	tiny := gpuPod(t, "tiny", 1, "")
	unplaced := tiny.DeepCopy()
	unplaced.CreationTimestamp = metav1.NewTime(time.Now().Add(-24 * time.Hour))
	stuck := gone.DeepCopy()
	stuck.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(-24 * time.Hour)}
	silent := small.DeepCopy()
	delete(silent.Annotations, kube.AnnotationRebalance)
	budget := &policy.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "all"}, Spec: policy.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
	}
	for name, tc := range map[string]struct {
		objects []runtime.Object
		change  func(*Args)
		limits  *evictions.Options
		want    []string
	}{
		"frees a GPU":              {[]runtime.Object{a, b, small, never}, nil, nil, []string{"small"}},
		"the smaller one":          {[]runtime.Object{a, b, small, large}, nil, nil, []string{"small"}},
		"lets a pod in":            {[]runtime.Object{a, b, small, large, waits}, nil, nil, []string{"small"}},
		"nothing lets a pod in":    {[]runtime.Object{a, b, small, large, hopeless}, nil, nil, []string{"small"}},
		"waits for a placement":    {[]runtime.Object{a, b, small, never, tiny}, nil, nil, nil},
		"which does not come":      {[]runtime.Object{a, b, small, never, unplaced}, nil, nil, []string{"small"}},
		"waits for the end":        {[]runtime.Object{a, b, small, never, gone}, nil, nil, nil},
		"which does not come, too": {[]runtime.Object{a, b, small, never, stuck}, nil, nil, []string{"small"}},
		"nobody has agreed":        {[]runtime.Object{a, b, silent, never}, nil, nil, nil},
		"budget":                   {[]runtime.Object{a, b, small, large, budget}, nil, nil, nil},
		"not of this node":         {[]runtime.Object{unselected, b, small, never}, nil, nil, nil},
		"another profile's pods":   {[]runtime.Object{a, b, small, never, waits}, func(a *Args) { a.Scheduler = "other" }, nil, nil},
		"limit of the descheduler": {[]runtime.Object{a, b, small, never}, nil, evictions.NewOptions().WithMaxPodsToEvictTotal(new(uint(0))), nil},
	} {
		t.Run(name, func(t *testing.T) {
			limits := tc.limits
			if limits == nil {
				limits = evictions.NewOptions()
			}
			if got := cycles(t, 1, limits, tc.change, tc.objects...); !slices.Equal(got, tc.want) {
				t.Errorf("evicted %v, want %v", got, tc.want)
			}
		})
	}
}

// TestRoomThatIsBeingMade: evicting small would let a pod in that waits. Nothing is evicted for it if it fits where other pods are ending, or if
// the scheduler has preempted others for it; a pod whose grace period is long or has long been over does not count as ending.
func TestRoomThatIsBeingMade(t *testing.T) {
	a, b, c := gpuNode(t, "a"), gpuNode(t, "b"), gpuNode(t, "c")
	small, large, waits := gpuPod(t, "small", 30, "a"), gpuPod(t, "large", 60, "b"), gpuPod(t, "waits", 100, "")
	nominated := waits.DeepCopy()
	nominated.Status.NominatedNodeName = "c"
	ending := func(sm int64, end time.Duration, change func(*v1.Pod)) *v1.Pod {
		pod := gpuPod(t, "ending", sm, "c")
		pod.DeletionTimestamp, pod.Finalizers = &metav1.Time{Time: time.Now().Add(end)}, []string{"x/y"}
		if change != nil {
			change(pod)
		}
		return pod
	}
	stays := gpuPod(t, "stays", 10, "c")
	stays.Annotations[kube.AnnotationRebalance] = kube.RebalanceNever
	for name, tc := range map[string]struct {
		objects []runtime.Object
		want    []string
	}{
		"terminating":               {[]runtime.Object{waits, ending(90, 0, nil)}, nil},
		"with a grace period":       {[]runtime.Object{waits, ending(90, 20*time.Minute, nil)}, nil},
		"that has not agreed":       {[]runtime.Object{waits, ending(90, 0, func(p *v1.Pod) { p.Annotations[kube.AnnotationRebalance] = kube.RebalanceNever })}, nil},
		"too little":                {[]runtime.Object{waits, ending(80, 0, nil), stays}, []string{"small"}},
		"stuck":                     {[]runtime.Object{waits, ending(90, -24*time.Hour, nil)}, []string{"small"}},
		"with a grace period, long": {[]runtime.Object{waits, ending(90, 24*time.Hour, nil)}, []string{"small"}},
		"nominated":                 {[]runtime.Object{nominated, gpuPod(t, "large-c", 60, "c")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append([]runtime.Object{a, b, c, small, large}, tc.objects...)
			if got := cycles(t, 1, evictions.NewOptions(), nil, objects...); !slices.Equal(got, tc.want) {
				t.Errorf("evicted %v, want %v", got, tc.want)
			}
		})
	}
}

// TestReplacementWaits: no GPU is freed while a replacement of a pod that was moved waits, even if no node suits it. large would be next.
func TestReplacementWaits(t *testing.T) {
	small, large := gpuPod(t, "small", 30, "a"), gpuPod(t, "large", 60, "b")
	for name, tc := range map[string]struct {
		owner []metav1.OwnerReference
		want  []string
	}{"of the pod": {small.OwnerReferences, []string{"small"}}, "of another": {nil, []string{"small", "large"}}} {
		t.Run(name, func(t *testing.T) {
			hopeless := gpuPod(t, "hopeless", 100, "")
			hopeless.Spec.NodeSelector, hopeless.OwnerReferences = map[string]string{"none": "such"}, tc.owner
			got := cycles(t, 2, evictions.NewOptions(), nil, gpuNode(t, "a"), gpuNode(t, "b"), small, large, hopeless)
			if !slices.Equal(got, tc.want) {
				t.Errorf("evicted %v, want %v", got, tc.want)
			}
		})
	}
}

// TestRefusedEviction: an eviction that the API server refuses does not keep other pods from being moved in the next cycles.
func TestRefusedEviction(t *testing.T) {
	got := cyclesRefusing(t, "small", 2, evictions.NewOptions(), nil, gpuNode(t, "a"), gpuNode(t, "b"), gpuPod(t, "small", 30, "a"), gpuPod(t, "large", 60, "b"))
	if want := []string{"small", "large"}; !slices.Equal(got, want) {
		t.Errorf("tried to evict %v, want %v", got, want)
	}
}

// TestRest: the next cycles find the pod as before, and leave its owner alone until its rest is over.
func TestRest(t *testing.T) {
	small, stays := gpuPod(t, "small", 30, "a"), gpuPod(t, "large", 60, "b")
	stays.OwnerReferences = nil
	for name, tc := range map[string]struct {
		rest time.Duration
		want int
	}{"an hour": {time.Hour, 1}, "none": {1, 3}} {
		t.Run(name, func(t *testing.T) {
			got := cycles(t, 3, evictions.NewOptions(), func(a *Args) { a.Rest.Duration = tc.rest }, gpuNode(t, "a"), gpuNode(t, "b"), small, stays)
			if len(got) != tc.want {
				t.Errorf("evicted %v", got)
			}
		})
	}
}

func TestArgs(t *testing.T) {
	for name, change := range map[string]func(*Args){
		"gamma": func(a *Args) { a.GammaPercent = new(int64(150)) },
		"mix":   func(a *Args) { a.MixTenants = new(bool) },
		"moves": func(a *Args) { a.MovesPerGPU = -1 },
		"rest":  func(a *Args) { a.Rest.Duration = -time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			args := &Args{}
			Default(args)
			if err := Validate(args); err != nil {
				t.Fatalf("the defaults: %v", err)
			}
			change(args)
			if Validate(args) == nil {
				t.Error("no error")
			}
		})
	}
	if _, err := New(t.Context(), &v1.Pod{}, nil); err == nil {
		t.Error(fmt.Sprint("arguments of another plugin are accepted"))
	}
}
