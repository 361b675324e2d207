package scheduled_test

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// TestWeights: explain reads the weights of a profile from the scheduler's configuration and chooses the GPU that the scheduler chose; the
// default weights choose the other one.
func TestWeights(t *testing.T) {
	r := newRig(t)
	for _, object := range []metav1.ObjectMeta{{Name: cluster.Namespace}, {Namespace: cluster.Namespace, Name: "gshare-scheduler"}} {
		var err error
		if object.Namespace == "" {
			_, err = r.CoreV1().Namespaces().Create(r.ctx, &v1.Namespace{ObjectMeta: object}, metav1.CreateOptions{})
		} else {
			_, err = r.CoreV1().ConfigMaps(object.Namespace).Create(r.ctx,
				&v1.ConfigMap{ObjectMeta: object, Data: map[string]string{"config.yaml": configuration}}, metav1.CreateOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r.addNode(t, "weights", nil)
	// Two that do not fit on one GPU: the first leaves fewer SMs, the second less memory.
	const bySMs, byBoth = "by-sms", "gshare-complementary"
	create := func(name string, w wish) *v1.Pod {
		p := pod(name, "weights", w)
		p.Spec.SchedulerName = bySMs
		return r.until(t, r.add(t, p, false), bound)
	}
	create("weights-sms", wish{sm: 60, quota: 100, mem: 1024})
	create("weights-memory", wish{sm: 50, quota: 100, mem: 20480})
	asks := create("weights", wish{sm: 20, quota: 100, mem: 5120})

	s, err := cluster.Read(r.ctx, r)
	if err != nil || len(s.Notes) > 0 {
		t.Fatalf("%v, %q", err, s.Notes)
	}
	var node *v1.Node
	for _, n := range s.Nodes {
		if n.Name == "weights" {
			node = n
		}
	}
	chosen := func(scheduler string) string {
		profile, ok := s.Profile(scheduler)
		if !ok {
			t.Fatalf("no profile %s", scheduler)
		}
		before := s.Derive(node, profile, nil, func(p *v1.Pod) bool { return p.UID == asks.UID })
		plan, _, refusal := profile.Packer.Place(before.Node, &s.PodRequest(asks).Pod)
		if refusal != packing.Admitted || before.Untrusted != nil {
			t.Fatalf("%s: %v, %v", scheduler, refusal, before.Untrusted)
		}
		return string(before.Slices[plan[0][0].Slice].ID)
	}
	placed := s.PodRequest(asks).Placement.Containers[0].VGPUs[0].Slice
	if got := chosen(bySMs); got != placed {
		t.Errorf("%s: explain chooses %s, the scheduler chose %s", bySMs, got, placed)
	}
	if got := chosen(byBoth); got == placed {
		t.Errorf("%s: the default weights choose %s, too", byBoth, got)
	}
}
