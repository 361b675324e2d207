package faults

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// vgpusOf returns the slices of each container by name, from a bound pod's placement.
func (l *lab) vgpusOf(pod string) map[string][]string {
	l.t.Helper()
	p, present, err := kube.PlacementOf(l.pod(pod))
	if err != nil || !present {
		l.t.Fatalf("placement of %s: present %t, %v", pod, present, err)
	}
	out := map[string][]string{}
	for _, c := range p.Containers {
		for _, v := range c.VGPUs {
			out[c.Name] = append(out[c.Name], v.Slice)
		}
	}
	return out
}

func TestEveryContainerIsPlaced(t *testing.T) {
	l := newLab(t)
	l.sharedScheduler()
	l.addNodes(node("n", 3))
	l.addPods(gpuPod("pod", 200, gshare("vgpu", "2"),
		withInit(container("prepare")),
		withInit(sidecar(container("sidecar", "sm", "10", "mem", "100"))),
		withContainer(container("helper", "sm", "20", "quota", "50", "mem", "100")),
		withContainer(container("plain")),
	))
	l.waitBound("pod")
	got := l.vgpusOf("pod")
	if len(got) != 3 || len(got["main"]) != 2 || len(got["sidecar"]) != 1 || len(got["helper"]) != 1 {
		t.Errorf("placed are %v, want main with 2 vGPUs, sidecar and helper with 1", got)
	}
	if main := got["main"]; len(main) == 2 && main[0] == main[1] {
		t.Errorf("both vGPUs of main are on %s", main[0])
	}
	l.finish()
}

// TestContainersAreAllPlacedOrNone has a pod whose two containers each fit alone, but not together.
func TestContainersAreAllPlacedOrNone(t *testing.T) {
	l := newLab(t)
	l.sharedScheduler()
	l.addNodes(node("small", 1))
	l.addPods(gpuPod("pod", 60, gshare("quota", "60"), withContainer(container("helper", "sm", "60", "quota", "60", "mem", "100"))))
	l.waitRefused("pod")
	l.waitEvent(l.pod("pod").UID, "FailedScheduling", "containers of the pod do not fit together")
	if text := l.pod("pod").Annotations[kube.AnnotationPlacement]; text != "" {
		t.Errorf("the waiting pod has the placement %s", text)
	}
	l.addPods(gpuPod("whole", 100)) // the waiting pod reserves nothing
	l.waitBound("whole")
	l.addNodes(node("large", 2))
	l.waitBound("pod")
	if got := l.vgpusOf("pod"); len(got) != 2 || slices.Equal(got["main"], got["helper"]) {
		t.Errorf("placed are %v, want main and helper on different GPUs", got)
	}
	l.finish()
}

// TestProfilesNeverMixOnASlice creates pods of both packing models for the same nodes at once. There is one GPU more than
// the models need separately, since each may leave half a GPU unused.
func TestProfilesNeverMixOnASlice(t *testing.T) {
	l := newLab(t)
	scheduler := l.sharedScheduler()
	l.addNodes(nodes("n", 5, 2)...)
	var pods []*v1.Pod
	for i := range 16 {
		pods = append(pods, gpuPod(fmt.Sprintf("slots-%d", i), 50, gshare("quota", "40")),
			gpuPod(fmt.Sprintf("rectangles-%d", i), 50, gshare("quota", "45"), profile(rectangle)))
	}
	l.addPods(pods...)
	l.waitBound(names(pods)...)
	models := map[kube.FitModel]int{}
	for _, s := range l.finish().Slices {
		models[s.Packing]++
	}
	t.Logf("slices by packing model: %v", models)
	if models[kube.Slots] == 0 || models[kube.Rectangles] == 0 {
		t.Errorf("slices by packing model are %v, want some of each", models)
	}
	if err := scheduler.Err(); err != nil {
		t.Error(err)
	}
}
