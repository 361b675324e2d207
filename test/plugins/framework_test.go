// Package plugins_test runs gshare's scheduler plugins inside the real scheduling framework.
package plugins_test

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	internalqueue "k8s.io/kubernetes/pkg/scheduler/backend/queue"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	tf "k8s.io/kubernetes/pkg/scheduler/testing/framework"

	"github.com/gshare-dev/gshare/plugins"
	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/plugins/registry"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// world is a scheduling framework with a single packing plugin, on a snapshot of the cluster.
type world struct {
	framework.Framework
	client    *fake.Clientset
	informers informers.SharedInformerFactory
	queue     internalqueue.SchedulingQueue
	snapshot  *internalcache.Snapshot
	ledger    *ledger.Ledger
}

// newWorld returns a world with SlotPacking.
func newWorld(t *testing.T, nodes []*v1.Node, pods ...*v1.Pod) world {
	t.Helper()
	return newWorldOf(t, registry.SlotPacking, nodes, pods...)
}

func newWorldOf(t *testing.T, name string, nodes []*v1.Node, pods ...*v1.Pod) world {
	t.Helper()
	metrics.Register()
	var objects v1.PodList
	for _, pod := range pods {
		objects.Items = append(objects.Items, *pod)
	}
	w := world{client: fake.NewClientset(&objects), snapshot: internalcache.NewSnapshot(pods, nodes), ledger: ledger.New()}
	w.informers = informers.NewSharedInformerFactory(w.client, 0)
	w.queue = internalqueue.NewSchedulingQueue(nil, w.informers)
	w.knows(t, pods...)
	packer := tf.RegisterPluginAsExtensionsWithWeight(name, 1200, plugins.New(name, w.ledger),
		"PreFilter", "Filter", "PostFilter", "PreScore", "Score", "Reserve", "Bind")
	var err error
	w.Framework, err = tf.NewFramework(t.Context(), []tf.RegisterPluginFunc{
		tf.RegisterQueueSortPlugin(queuesort.Name, queuesort.New), packer, tf.RegisterBindPlugin(defaultbinder.Name, defaultbinder.New),
	}, "gshare",
		frameworkruntime.WithClientSet(w.client),
		frameworkruntime.WithInformerFactory(w.informers),
		frameworkruntime.WithEventRecorder(events.NewFakeRecorder(100)),
		frameworkruntime.WithSnapshotSharedLister(w.snapshot),
		frameworkruntime.WithMutableSnapshotLister(w.snapshot),
		frameworkruntime.WithPodNominator(w.queue),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
	)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// knows adds pods to the informer's store.
func (w world) knows(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, pod := range pods {
		if err := w.informers.Core().V1().Pods().Informer().GetStore().Add(pod); err != nil {
			t.Fatal(err)
		}
	}
}

// filter runs PreFilter, and then the filters on every node with the nominated pods, as the scheduler does.
func (w world) filter(t *testing.T, state fwk.CycleState, pod *v1.Pod) *framework.NodeToStatus {
	t.Helper()
	ctx := context.Background()
	if _, status, _ := w.RunPreFilterPlugins(ctx, state, pod); !status.IsSuccess() {
		t.Fatal(status)
	}
	out := framework.NewDefaultNodeToStatus()
	nodes, err := w.snapshot.NodeInfos().List()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range nodes {
		if status := w.RunFilterPluginsWithNominatedPods(ctx, state, pod, info); !status.IsSuccess() {
			out.Set(info.Node().Name, status)
		}
	}
	return out
}

// gpuNode returns a node with the given number of whole GPUs, named after the node: n1-0, n1-1 and so on.
func gpuNode(t *testing.T, name string, gpus int) *v1.Node {
	t.Helper()
	var inv kube.Inventory
	for i := range gpus {
		id := fmt.Sprintf("%s-%d", name, i)
		inv.Slices = append(inv.Slices, kube.Slice{
			ID: id, Device: id, Model: "A100", SMs: 108, MemoryMiB: 40960, Healthy: true, Classes: []share.Isolation{share.MPS},
		})
	}
	text, err := kube.EncodeInventory(inv)
	if err != nil {
		t.Fatal(err)
	}
	node := st.MakeNode().Name(name).UID("uid-" + name).Capacity(map[v1.ResourceName]string{"cpu": "64", "memory": "256Gi", "pods": "110"}).Obj()
	node.Annotations = map[string]string{kube.AnnotationInventory: text}
	return node
}

// gpuPod returns a pod that requests all SMs of a GPU for the given percentage of the time.
func gpuPod(name string, quota int, priority int32) *v1.Pod {
	pod := st.MakePod().Namespace("team").Name(name).UID("uid-" + name).Priority(priority).Lim(map[v1.ResourceName]string{
		kube.ResourceSM: "100", kube.ResourceQuota: fmt.Sprint(quota), kube.ResourceMemory: "1024",
	}).Obj()
	pod.ResourceVersion = "1"
	kube.Complete(pod)
	return pod
}

// placed returns the pod as it is once bound to the slice.
func placed(t *testing.T, pod *v1.Pod, node, slice string) *v1.Pod {
	t.Helper()
	req, _, err := kube.RequestOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	c := req.Containers[0]
	text, err := kube.EncodePlacement(kube.Placement{Node: node, UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: c.Name, VGPUs: []kube.PlacedVGPU{{Slice: slice, Class: share.MPS, Priority: req.Priority, Share: c.Share}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	out := pod.DeepCopy()
	out.Spec.NodeName, out.ResourceVersion = node, "2"
	out.Annotations = map[string]string{kube.AnnotationPlacement: text}
	return out
}

func podInfo(t *testing.T, pod *v1.Pod) *framework.PodInfo {
	t.Helper()
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// sliceOf returns the pod's slice according to the ledger.
func (w world) sliceOf(uid types.UID) string {
	if assumed, ok := w.ledger.Get(uid); ok {
		return assumed.Containers[0].VGPUs[0].Slice
	}
	return ""
}
