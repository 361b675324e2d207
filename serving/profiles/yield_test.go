package profiles

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// ofFunction returns a profile of a function, and the function.
func ofFunction(minReplicas int) (*api.GPUProfile, *api.GPUFunction) {
	p := someProfile()
	f := &api.GPUFunction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: "f"}, Spec: api.GPUFunctionSpec{
		SLO: sloOf(p), Protocol: p.Spec.Protocol, Template: p.Spec.Template, Scaling: api.Scaling{MinReplicas: minReplicas},
	}}
	p.Spec = api.GPUProfileSpec{FunctionRef: &api.FunctionReference{Name: f.Name}, StaleAfter: p.Spec.StaleAfter}
	return p, f
}

// replica creates a replica of the function: on the GPU, or waiting for a node.
func (w *world) replica(name string, placed bool) *v1.Pod {
	w.Helper()
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.key.Namespace, Name: name, UID: "r", Labels: map[string]string{api.LabelFunction: w.key.Name}, Annotations: map[string]string{}}}
	p.Spec.Containers = []v1.Container{{Name: "server", Image: "bert"}}
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: "0/1 nodes: not enough GPU memory"}}
	if placed {
		whole := share.Share{SMRequest: share.Whole, SMLimit: share.Whole, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: 40960 * share.MiB}
		text, err := kube.EncodePlacement(kube.Placement{Node: "node1", UID: p.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
			Name: "server", VGPUs: []kube.PlacedVGPU{{Slice: gpuID, Class: share.Exclusive, Priority: share.SLO, Share: whole}},
		}}})
		if err != nil {
			w.Fatal(err)
		}
		p.Annotations[kube.AnnotationPlacement] = text
		p.Spec.NodeName, p.Status = "node1", v1.PodStatus{Phase: v1.PodRunning}
	}
	if err := w.server.Create(w.Context(), p); err != nil {
		w.Fatal(err)
	}
	return p
}

// pass lets the cluster run for some seconds.
func (w *world) pass(seconds int) *api.GPUProfile {
	w.Helper()
	for range seconds {
		if _, err := w.reconcile(); err != nil {
			w.Fatal(err)
		}
		w.kubelet()
		time.Sleep(time.Second)
	}
	return w.profile()
}

func reasonOf(p *api.GPUProfile) string {
	c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionComplete)
	if c == nil {
		return ""
	}
	return c.Reason + ": " + c.Message
}

// TestOnlyGPU: a cluster whose only GPU has the function's own replica says so, and what to do. Once the function has no requests it is measured.
func TestOnlyGPU(t *testing.T) {
	for name, test := range map[string]struct {
		min    int
		own    bool
		others []*v1.Node
		want   string
	}{
		"its own replica":      {0, true, nil, "GPUInUse: the only H200 has the replica bert-1 of the function, which ends by itself when there are no requests"},
		"and keeps it":         {1, true, nil, "GPUInUse: the only H200 has the replica bert-1 of the function, which its scaling.minReplicas of 1 keeps"},
		"another GPU, in use":  {0, true, []*v1.Node{gpuNode(t, "node2", "H200", 40960, func(s *kube.Slice) { s.ID, s.Device = "GPU-2", "GPU-2" })}, "GPUInUse: the server waits until one of 2 H200 is free"},
		"somebody else's pods": {0, false, nil, "GPUInUse: the server waits until one of 1 H200 is free, with nobody else on it: waits for a node: 0/1 nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p, f := ofFunction(test.min)
				w := newWorld(t, p, f, gpuNode(t, "node1", "H200", 40960))
				for _, n := range test.others {
					if err := w.server.Create(t.Context(), n); err != nil {
						t.Fatal(err)
					}
				}
				w.taken = true
				var own *v1.Pod
				if test.own {
					own = w.replica("bert-1", true)
				}
				if got := reasonOf(w.pass(20)); !strings.HasPrefix(got, test.want) {
					t.Errorf("%s, want %s", got, test.want)
				}
				if own == nil || test.min > 0 || len(test.others) > 0 { // the rest is the same
					return
				}
				if err := w.server.Delete(t.Context(), own); err != nil {
					t.Fatal(err)
				}
				w.taken = false
				if got := reasonOf(w.run()); !strings.HasPrefix(got, "Measured") || w.servers == 0 {
					t.Errorf("afterwards %s, %d servers", got, w.servers)
				}
			})
		})
	}
}

// TestYield: a profile gives its GPU to a replica of its function that waits for one, as often as that happens, and goes on afterwards with the trials that it
// has. What it finds is what it would have found.
func TestYield(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		p, f := ofFunction(0)
		undisturbed := newWorld(t, p.DeepCopy(), f.DeepCopy(), gpuNode(t, "node1", "H200", 40960))
		want := result(undisturbed, undisturbed.run())

		w := newWorld(t, p, f, gpuNode(t, "node1", "H200", 40960))
		const times = 8 // more often than a client may be lost
		for n := range times {
			w.pass(6)
			waiting := w.replica("bert-1", false)
			before := w.profile()
			after := w.pass(10)
			if got := reasonOf(after); !strings.HasPrefix(got, "GPUInUse: a replica of the function waits") || !strings.HasSuffix(got, "bert-1 waits for a node: 0/1 nodes: not enough GPU memory") || after.Status.Attempt != nil || len(w.pods()) != 1 {
				t.Fatalf("%d: %s, %d pods", n, got, len(w.pods())-1)
			}
			if len(after.Status.Points) < len(before.Status.Points) {
				t.Errorf("%d points of %d are left", len(after.Status.Points), len(before.Status.Points))
			}
			if err := w.server.Delete(t.Context(), waiting); err != nil {
				t.Fatal(err)
			}
		}
		if got := result(w, w.run()); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		for what, count := range w.ran {
			if count > 1 {
				t.Errorf("%s was measured %d times", what, count)
			}
		}
	})
}

// TestNoYield: a profile keeps its GPU where a replica that waits would gain nothing from it. Otherwise it would wait with it, for ever.
func TestNoYield(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1.Pod)
		yields bool
	}{
		"a GPU of any model":     {func(*v1.Pod) {}, true},
		"one of two models":      {func(p *v1.Pod) { p.Annotations[kube.AnnotationModel] = "A100,H200" }, true},
		"a GPU of another model": {func(p *v1.Pod) { p.Annotations[kube.AnnotationModel] = "A100" }, false},
		"held back by a gate":    {func(p *v1.Pod) { p.Status.Conditions[0].Reason = v1.PodReasonSchedulingGated }, false},
		"not yet looked at":      {func(p *v1.Pod) { p.Status.Conditions = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				p, f := ofFunction(0)
				w := newWorld(t, p, f, gpuNode(t, "node1", "H200", 40960))
				waiting := w.replica("bert-1", false)
				test.change(waiting)
				status := waiting.Status
				if err := w.server.Update(t.Context(), waiting); err != nil {
					t.Fatal(err)
				}
				waiting.Status = status
				if err := w.server.Status().Update(t.Context(), waiting); err != nil {
					t.Fatal(err)
				}
				if after := w.pass(20); (w.servers == 0) != test.yields {
					t.Errorf("%s, %d servers", reasonOf(after), w.servers)
				}
			})
		})
	}
}

// TestSameReplica: a profile names the same of several replicas, whatever their order, which is another one each time in a cache. Otherwise it would write its
// status without end.
func TestSameReplica(t *testing.T) {
	p, f := ofFunction(0)
	w := newWorld(t, p, f, gpuNode(t, "node1", "H200", 40960))
	replicas := []v1.Pod{*w.replica("bert-1", true), *w.replica("bert-2", true), *w.replica("bert-3", false), *w.replica("bert-4", false)}
	for range 2 {
		s := &state{profile: p, replicas: replicas, nodes: []v1.Node{*gpuNode(t, "node1", "H200", 40960)}}
		if on, waits := s.replicaOn(gpuID), s.waitingReplica(&p.Status); on != "bert-1" || waits == nil || waits.Name != "bert-3" {
			t.Errorf("%s, %+v", on, waits)
		}
		slices.Reverse(replicas)
	}
}
