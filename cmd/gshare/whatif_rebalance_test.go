package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// scatteredServer shows two nodes of one GPU, each with a pod on a part of it, and a pod that waits for a whole one.
func scatteredServer(t *testing.T) (kubeconfig string) {
	var nodes v1.NodeList
	var pods v1.PodList
	for i, sm := range []string{"30", "60", "100"} {
		node := fmt.Sprint("n", i)
		pod := v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "ml", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("uid", i)), Annotations: map[string]string{},
				OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", UID: "r", Controller: new(true)}},
			},
			Spec: v1.PodSpec{SchedulerName: kube.SchedulerName, Containers: []v1.Container{{
				Name: "main", Resources: v1.ResourceRequirements{Limits: quantities("gshare/sm", sm, "gshare/mem", "1000")},
			}}},
		}
		kube.Complete(&pod)
		if i < 2 {
			id := "GPU-" + node
			inv := kube.Inventory{Slices: []kube.Slice{{
				ID: id, Device: id, Model: "A100", SMs: 108, MemoryMiB: 40960, Healthy: true, MaxShares: 16,
				Classes: []share.Isolation{share.Exclusive, share.MPS},
			}}}
			text, err := kube.EncodeInventory(inv)
			if err != nil {
				t.Fatal(err)
			}
			has := quantities("cpu", "64", "memory", "512Gi", "pods", "110")
			nodes.Items = append(nodes.Items, v1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: node, Annotations: map[string]string{kube.AnnotationInventory: text}},
				Status:     v1.NodeStatus{Capacity: has, Allocatable: has},
			})
			request, _, err := kube.RequestOf(&pod)
			if err != nil {
				t.Fatal(err)
			}
			vgpu := kube.PlacedVGPU{Slice: id, Class: share.MPS, Priority: share.BestEffort, Share: request.Containers[0].Share}
			pod.Annotations[kube.AnnotationPlacement], err = kube.EncodePlacement(kube.Placement{
				Node: node, UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{Name: "main", VGPUs: []kube.PlacedVGPU{vgpu}}},
			})
			if err != nil {
				t.Fatal(err)
			}
			pod.Spec.NodeName = node
		}
		pods.Items = append(pods.Items, pod)
	}
	return listServer(t, map[string]any{
		"/api/v1/nodes": nodes, "/api/v1/pods": pods, "/api/v1/namespaces": v1.NamespaceList{},
		"/apis/policy/v1/poddisruptionbudgets": policy.PodDisruptionBudgetList{},
	})
}

func TestWhatifRebalance(t *testing.T) {
	kubeconfig := scatteredServer(t)
	text, err := runWhatif(t, "--rebalance", "--kubeconfig", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ml/p0  n0/GPU-n0  n1/GPU-n1\n", "1 moves free 1 GPUs\n  n0/GPU-n0\n", "ml/p2 waits, and fits on node n0 after 1 moves"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	for name, args := range map[string][]string{"agreed": {"--agreed"}, "other namespaces": {"-n", "web"}} {
		t.Run(name, func(t *testing.T) {
			text, err := runWhatif(t, append(args, "--rebalance", "--kubeconfig", kubeconfig, "-o", "json")...)
			if err != nil {
				t.Fatal(err)
			}
			var got rebalancing
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Moves) != 0 || len(got.Waiting) != 1 || got.Waiting[0].Node != "" || len(got.Stay) != 1 || !strings.HasPrefix(got.Stay[0], "2: neither") {
				t.Errorf("%+v", got)
			}
		})
	}
}
