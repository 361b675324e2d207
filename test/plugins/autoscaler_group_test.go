package plugins_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	fwk "k8s.io/kube-scheduler/framework"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultbinder"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodeaffinity"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/queuesort"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/tainttoleration"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	st "k8s.io/kubernetes/pkg/scheduler/testing"
	tf "k8s.io/kubernetes/pkg/scheduler/testing/framework"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// The size of the node in docs/queues.md.
const (
	groupGPUs = 8
	groupMiB  = 81920
)

// arrived returns a node of the group once its agent has published its GPUs.
func arrived(t *testing.T) *v1.Node {
	t.Helper()
	var inventory kube.Inventory
	for i := range groupGPUs {
		id := fmt.Sprintf("GPU-%d", i)
		inventory.Slices = append(inventory.Slices, kube.Slice{
			ID: id, Device: id, Model: "A100", SMs: 108, MemoryMiB: groupMiB, Healthy: true, Classes: []share.Isolation{share.Exclusive, share.MPS},
		})
	}
	text, err := kube.EncodeInventory(inventory)
	if err != nil {
		t.Fatal(err)
	}
	node := template(kube.NodeResources(inventory))
	node.Annotations = map[string]string{kube.AnnotationInventory: text}
	return node
}

// template returns a node of the group as the autoscaler constructs it while the group is empty: with the group's label and
// resources.
func template(shared v1.ResourceList) *v1.Node {
	node := st.MakeNode().Name("new").Label("gshare.dev/gpus", "true").
		Capacity(map[v1.ResourceName]string{"cpu": "96", "memory": "768Gi", "pods": "110"}).Obj()
	for name, q := range shared {
		node.Status.Capacity[name], node.Status.Allocatable[name] = q, q
	}
	return node
}

var row = regexp.MustCompile("(?m)^\\| (`gshare/.*`) \\| ([0-9]+) \\|")

// documented returns the resources in the table of the documentation.
func documented(t *testing.T) v1.ResourceList {
	t.Helper()
	text, err := os.ReadFile("../../docs/queues.md")
	if err != nil {
		t.Fatal(err)
	}
	list := v1.ResourceList{}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Split(m[1], ", ") {
			list[v1.ResourceName(strings.Trim(name, "`"))] = *resource.NewQuantity(n, resource.DecimalSI)
		}
	}
	return list
}

// stock runs the filters that decide in the autoscaler's simulation: those of Kubernetes, without gshare's.
func stock(t *testing.T, pod *v1.Pod, node *v1.Node) *fwk.Status {
	t.Helper()
	metrics.Register()
	client := fake.NewClientset()
	fw, err := tf.NewFramework(t.Context(), []tf.RegisterPluginFunc{
		tf.RegisterQueueSortPlugin(queuesort.Name, queuesort.New), tf.RegisterBindPlugin(defaultbinder.Name, defaultbinder.New),
		tf.RegisterPluginAsExtensions(noderesources.Name, frameworkruntime.FactoryAdapter(feature.Features{}, noderesources.NewFit), "PreFilter", "Filter"),
		tf.RegisterPluginAsExtensions(nodeaffinity.Name, frameworkruntime.FactoryAdapter(feature.Features{}, nodeaffinity.New), "PreFilter", "Filter"),
		tf.RegisterPluginAsExtensions(tainttoleration.Name, frameworkruntime.FactoryAdapter(feature.Features{}, tainttoleration.New), "Filter"),
	}, "default", frameworkruntime.WithClientSet(client), frameworkruntime.WithInformerFactory(informers.NewSharedInformerFactory(client, 0)),
		frameworkruntime.WithSnapshotSharedLister(internalcache.NewSnapshot(nil, []*v1.Node{node})))
	if err != nil {
		t.Fatal(err)
	}
	return judge(t, fw, pod, node)
}

// judge runs the filters on an empty node.
func judge(t *testing.T, fw framework.Framework, pod *v1.Pod, node *v1.Node) *fwk.Status {
	t.Helper()
	state := framework.NewCycleState()
	if _, status, _ := fw.RunPreFilterPlugins(t.Context(), state, pod); !status.IsSuccess() {
		return status
	}
	info := framework.NewNodeInfo()
	info.SetNode(node)
	return fw.RunFilterPlugins(t.Context(), state, pod, info)
}

// pending returns a pod as the admission policies complete it.
func pending(sm, mem, vgpus, quota int) *v1.Pod {
	pod := st.MakePod().Namespace("team").Name("pending").UID("uid-pending").Lim(map[v1.ResourceName]string{
		kube.ResourceSM: fmt.Sprint(sm), kube.ResourceMemory: fmt.Sprint(mem), kube.ResourceVGPU: fmt.Sprint(vgpus), kube.ResourceQuota: fmt.Sprint(quota),
	}).Obj()
	kube.Complete(pod)
	return pod
}
