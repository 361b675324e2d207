package plugins_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// TestTemplateIsTrue: the resources that the documentation assumes for an empty group are those that an agent advertises on
// its nodes.
func TestTemplateIsTrue(t *testing.T) {
	node, list := arrived(t), documented(t)
	if len(list) != 5 {
		t.Errorf("the table has %d resources", len(list))
	}
	for name, want := range list {
		if got := node.Status.Allocatable[name]; got.Cmp(want) != 0 {
			t.Errorf("%s: the documents say %v, an agent advertises %v", name, want.Value(), got.Value())
		}
	}
}

// TestScaleFromZero: the autoscaler would add a node of the group for a pod if and only if the pod fits on such a node.
// Exceptions are the constraints that only gshare sees: the memory of a single GPU, and that the vGPUs of a container are on
// different GPUs.
func TestScaleFromZero(t *testing.T) {
	empty, node := template(documented(t)), arrived(t)
	for name, test := range map[string]struct {
		pod        *v1.Pod
		adds, fits bool
		why        string // why the autoscaler adds no node
	}{
		"a share":            {pending(24, 4096, 1, 100), true, true, ""},
		"a part of the time": {pending(60, 8192, 1, 40), true, true, ""},
		"two GPUs":           {pending(200, 2*groupMiB, 2, 100), true, true, ""},
		"all of the node":    {pending(800, 8*groupMiB, 8, 100), true, true, ""},
		"nine GPUs":          {pending(900, 9*1024, 9, 100), false, false, "Insufficient gshare/sm-time"},
		"too much memory":    {pending(800, 8*groupMiB+8, 8, 100), false, false, "Insufficient gshare/mem"},
		"other nodes":        {elsewhere(pending(24, 4096, 1, 100)), false, false, "node affinity/selector"},
		"more than one GPU":  {pending(50, groupMiB+1, 1, 100), true, false, ""},
		"nine small vGPUs":   {pending(90, 9*1024, 9, 100), true, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			status := stock(t, test.pod, empty)
			if status.IsSuccess() != test.adds || !strings.Contains(status.Message(), test.why) {
				t.Errorf("the autoscaler says %v", status)
			}
			w := newWorld(t, []*v1.Node{node})
			if fits := judge(t, w.Framework, test.pod, node).IsSuccess() && stock(t, test.pod, node).IsSuccess(); fits != test.fits {
				t.Errorf("it fits the node that arrives: %v", fits)
			}
		})
	}
}

func elsewhere(pod *v1.Pod) *v1.Pod {
	pod.Spec.NodeSelector = map[string]string{"pool": "other"}
	return pod
}

// TestTemplateNeedsNoInventory: gshare's own plugin refuses a node without an inventory, so it must not take part in the
// simulation.
func TestTemplateNeedsNoInventory(t *testing.T) {
	empty := template(documented(t))
	w := newWorld(t, []*v1.Node{empty})
	if status := judge(t, w.Framework, pending(24, 4096, 1, 100), empty); status.IsSuccess() {
		t.Error("a node without GPUs takes a share")
	}
}

// TestAddedNodesFit: except for these two constraints, every pod for which the autoscaler adds a node fits on that node.
func TestAddedNodesFit(t *testing.T) {
	empty, node := template(documented(t)), arrived(t)
	w := newWorld(t, []*v1.Node{node})
	random, added := rand.New(rand.NewPCG(1, 8)), 0
	for range 200 {
		vgpus := 1 + random.IntN(10)
		sm, quota := 100*vgpus, 100
		if vgpus == 1 {
			sm, quota = 1+random.IntN(100), 1+random.IntN(100)
		}
		pod := pending(sm, vgpus*(1+random.IntN(groupMiB)), vgpus, quota)
		if !stock(t, pod, empty).IsSuccess() {
			continue
		}
		added++
		if status := judge(t, w.Framework, pod, node); status.IsSuccess() != (vgpus <= groupGPUs) {
			t.Errorf("%v: %v", pod.Spec.Containers[0].Resources.Limits, status)
		}
	}
	if added < 100 || added == 200 {
		t.Errorf("%d of 200 pods are tried", added)
	}
}
