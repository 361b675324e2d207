package sharing

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
)

func TestMalformedPlacementClosesTheNode(t *testing.T) {
	other := placed(t, gpuPod("other", 100, 10), "n1", "n1-0").Annotations[kube.AnnotationPlacement]
	more := placed(t, gpuPod("a", 100, 100), "n1", "n1-0").Annotations[kube.AnnotationPlacement]
	for name, text := range map[string]string{"no JSON": "{", "another pod's": other, "more than asked": more} {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, newHandle(), 0)
			_, err := deriveOn(t, p, gpuPod("a", 100, 10, on("n1"), annotation(kube.AnnotationPlacement, text)))
			if !errors.Is(err, nodeview.ErrPlacement) {
				t.Errorf("err %v", err)
			}
		})
	}
}

// Anyone may write an annotation; only a bound pod that requests a share can have been placed.
func TestForgedPlacementCountsNowhere(t *testing.T) {
	pod := gpuPod("a", 100, 30)
	text := placed(t, pod, "n1", "n1-1").Annotations[kube.AnnotationPlacement]
	tests := map[string]struct {
		pod  *v1.Pod
		want []int64
	}{
		"nominated, well-formed":  {pod: gpuPod("a", 100, 30, annotation(kube.AnnotationPlacement, text)), want: []int64{30, 0}},
		"nominated, malformed":    {pod: gpuPod("a", 100, 30, annotation(kube.AnnotationPlacement, "{")), want: []int64{30, 0}},
		"asks for no GPU":         {pod: cpuPod("a", on("n1"), annotation(kube.AnnotationPlacement, text)), want: []int64{0, 0}},
		"asks for no GPU, broken": {pod: cpuPod("a", on("n1"), annotation(kube.AnnotationPlacement, "{")), want: []int64{0, 0}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := deriveOn(t, newPlugin(t, newHandle(), 0), tt.pod)
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("requested %v, err %v; want %v", got, err, tt.want)
			}
		})
	}
}

func TestPreFilterRefusesPods(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	text := placed(t, gpuPod("a", 100, 30), "n1", "n1-0").Annotations[kube.AnnotationPlacement]
	tests := map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"placed before":    {gpuPod("a", 100, 30, annotation(kube.AnnotationPlacement, text)), msgPlaced},
		"placed, no GPU":   {cpuPod("a", annotation(kube.AnnotationPlacement, text)), msgPlaced},
		"broken placement": {gpuPod("a", 100, 30, annotation(kube.AnnotationPlacement, "{")), msgPlaced},
		"no vgpu":          {cpuPod("a", limit(kube.ResourceSM, 50), limit(kube.ResourceMemory, 1)), "gshare/vgpu"},
		"parts of two":     {cpuPod("a", limit(kube.ResourceSM, 100), limit(kube.ResourceMemory, 2), limit(kube.ResourceVGPU, 2)), "gshare.dev/isolation: 2 vGPUs"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, status := p.PreFilter(context.Background(), newState(), tt.pod, nil)
			if status.Code() != fwk.UnschedulableAndUnresolvable || !strings.Contains(status.Message(), tt.want) {
				t.Errorf("status %v", status)
			}
		})
	}
}

func TestMalformedInventoryIsToldOnce(t *testing.T) {
	h := newHandle()
	p := newPlugin(t, h, 0)
	node := gpuNode(t, "n1", 1)
	derive := func(text string) {
		node = node.DeepCopy()
		node.Annotations[kube.AnnotationInventory] = text
		for range 3 {
			if _, err := p.deriveNode(newNodeInfo(node), "", nil); !errors.Is(err, nodeview.ErrInventory) {
				t.Errorf("inventory %q: err %v", text, err)
			}
		}
	}
	derive("{")
	derive("[]")
	if n := len(h.recorder.Events); n != 2 {
		t.Fatalf("%d events, want one for each content", n)
	}
	if e := <-h.recorder.Events; !strings.Contains(e, "MalformedInventory") {
		t.Errorf("event %q", e)
	}
	// The node goes, and with it what is remembered of it.
	p.pruneReported()
	if _, kept := p.reportedErrors.byNode.Load("n1"); kept {
		t.Error("a node that is gone is remembered")
	}
}

func TestFilterTellsWhetherPreemptionHelps(t *testing.T) {
	broken := gpuNode(t, "n1", 1)
	broken.Annotations[kube.AnnotationInventory] = "{"
	whole := placed(t, gpuPod("a", 100, 100), "n1", "n1-0")
	tests := map[string]struct {
		info *fakeNode
		want fwk.Code
	}{
		"room":              {newNodeInfo(gpuNode(t, "n1", 1)), fwk.Success},
		"full":              {newNodeInfo(gpuNode(t, "n1", 1), whole), fwk.Unschedulable},
		"no GPUs":           {newNodeInfo(gpuNode(t, "n1", 0)), fwk.UnschedulableAndUnresolvable},
		"broken inventory":  {newNodeInfo(broken), fwk.UnschedulableAndUnresolvable},
		"nominee untrusted": {newNodeInfo(gpuNode(t, "n1", 1), whole, gpuPod("b", 100, 100)), fwk.Unschedulable},
		"stranger":          {newNodeInfo(gpuNode(t, "n1", 1), whole, gpuPod("b", 100, 100, on("n1"))), fwk.Unschedulable},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlugin(t, newHandle(tt.info), 0)
			pod := gpuPod("new", 100, 50)
			state, _ := prefilter(t, p, pod)
			status := p.Filter(context.Background(), state, pod, tt.info)
			if status.Code() != tt.want {
				t.Errorf("synced: status %v, want %v", status, tt.want)
			}
			// The same node as a dry run sees it: another generation.
			if again := p.Filter(context.Background(), state, pod, newNodeInfo(tt.info.node, tt.info.pods...)); again.Code() != tt.want {
				t.Errorf("derived: status %v, want %v", again, tt.want)
			}
		})
	}
}

// What is known of a node's inventory follows the annotation, also where it comes and goes.
func TestInventoryFollowsTheAnnotation(t *testing.T) {
	p := newPlugin(t, newHandle(), 0)
	one, two, none, empty := gpuNode(t, "n1", 1), gpuNode(t, "n1", 2), gpuNode(t, "n1", 0), gpuNode(t, "n1", 0)
	none.Annotations = nil
	empty.Annotations[kube.AnnotationInventory] = ""
	for i, step := range []struct {
		node *v1.Node
		gpus int
		err  error
	}{{one, 1, nil}, {two, 2, nil}, {none, 0, nil}, {empty, 0, nodeview.ErrInventory}, {none, 0, nil}, {one, 1, nil}} {
		for range 2 {
			node, err := p.deriveNode(newNodeInfo(step.node), "", nil)
			if len(node.Slices) != step.gpus || !errors.Is(err, step.err) {
				t.Errorf("step %d: %d GPUs, err %v; want %d, %v", i, len(node.Slices), err, step.gpus, step.err)
			}
		}
	}
}

// TestRefusalsAreLogged: from level 5 on, the log says why a node was refused.
func TestRefusalsAreLogged(t *testing.T) {
	full := newNodeInfo(gpuNode(t, "n1", 1), placed(t, gpuPod("a", 100, 100), "n1", "n1-0"))
	p := newPlugin(t, newHandle(full), 0)
	pod := gpuPod("new", 100, 50)
	state, _ := prefilter(t, p, pod)
	for level, want := range map[int]bool{4: false, 5: true} {
		var out ktesting.BufferTL
		logger := ktesting.NewLogger(&out, ktesting.NewConfig(ktesting.Verbosity(level)))
		status := p.Filter(klog.NewContext(t.Context(), logger), state, pod, full)
		if got := strings.Contains(out.String(), "Refused a node") && strings.Contains(out.String(), status.Message()); got != want {
			t.Errorf("level %d: %q", level, out.String())
		}
		t.Log(out.String())
	}
}
