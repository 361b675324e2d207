package sharing

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

func TestHints(t *testing.T) {
	before := gpuNode(t, "n1", 1)
	sick, same := before.DeepCopy(), before.DeepCopy()
	sick.Annotations[kube.AnnotationInventory] = inventory(t, "n1", 2)
	same.Labels = map[string]string{"zone": "a"}
	node := fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAnnotation}
	gone := fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}
	tests := map[string]struct {
		event       fwk.ClusterEvent
		before, now any
		want        fwk.QueueingHint
	}{
		"a share is gone":           {gone, gpuPod("x", 10, 10), nil, fwk.Queue},
		"a pod without one is gone": {gone, cpuPod("x"), nil, fwk.QueueSkip},
		"an unknown object is gone": {gone, nil, nil, fwk.Queue},
		"node added":                {node, nil, before, fwk.Queue},
		"node added, typed nil":     {node, (*v1.Node)(nil), before, fwk.Queue},
		"inventory changed":         {node, before, sick, fwk.Queue},
		"something else changed":    {node, before, same, fwk.QueueSkip},
		"an unknown node changed":   {node, before, nil, fwk.Queue},
	}
	p := newPlugin(t, newHandle(), 0)
	events, err := p.EventsToRegister(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	hints := map[fwk.ClusterEvent]fwk.QueueingHintFn{}
	for _, e := range events {
		hints[e.Event] = e.QueueingHintFn
	}
	if hint, ok := hints[fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}]; !ok || hint != nil {
		t.Error("a corrected pod is not always queued")
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			hint := hints[tt.event]
			if hint == nil {
				t.Fatalf("event %v is not registered", tt.event)
			}
			if got, err := hint(klog.Background(), gpuPod("waits", 50, 50), tt.before, tt.now); err != nil || got != tt.want {
				t.Errorf("hint %v %v, want %v", got, err, tt.want)
			}
		})
	}
}
