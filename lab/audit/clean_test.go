package audit

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// clean returns a cluster with some of everything and nothing wrong: slots, rectangles, elastic, exclusive, MIG, several
// vGPUs, a pod that has ended, one that waits and one that needs no GPU.
func clean(t testing.TB) *cluster {
	c := newCluster(t)
	c.node("b", gpu("b0"), gpu("b1"), gpu("b2"))
	c.node("a", gpu("a0"), gpu("a1"), gpu("a2"), gpu("a3"))
	c.node("m", mig("m0-0", "m0"), mig("m0-1", "m0"), mig("m1-0", "m1"))
	c.add(spec{name: "half", node: "a", slices: []string{"a0"}, sm: 60, quota: 40, memory: 1000})
	c.add(spec{name: "half2", node: "a", slices: []string{"a0"}, sm: 60, quota: 40, memory: 1000})
	c.add(spec{name: "rect", node: "a", slices: []string{"a1"}, sm: 60, quota: 47, packing: kube.Rectangles})
	c.add(spec{name: "rect2", node: "a", slices: []string{"a1"}, sm: 60, quota: 47, packing: kube.Rectangles})
	c.add(spec{name: "moves", node: "a", slices: []string{"a2"}, sm: 30, class: share.Elastic,
		annotations: map[string]string{kube.AnnotationSMLimit: "80"}})
	c.add(spec{name: "alone", node: "a", slices: []string{"a3"}, sm: 100, class: share.Exclusive})
	c.add(spec{name: "pair", node: "b", slices: []string{"b0", "b1"}, sm: 50, vgpus: 2})
	c.add(spec{name: "mig", node: "m", slices: []string{"m0-0", "m1-0"}, sm: 50, vgpus: 2,
		annotations: map[string]string{kube.AnnotationSlice: share.AnyMIG}})
	c.add(spec{name: "waits", sm: 50})
	c.add(spec{name: "ended", node: "a", slices: []string{"a3"}, sm: 100}).Status.Phase = v1.PodSucceeded
	c.pods = append(c.pods, v1.Pod{Spec: v1.PodSpec{NodeName: "a", Containers: []v1.Container{{Name: "web"}}}})
	return c
}

func TestCleanCluster(t *testing.T) {
	r := clean(t).check()
	if len(r.Violations) != 0 || len(r.Orphans) != 0 {
		t.Errorf("violations %+v, orphans %+v", r.Violations, r.Orphans)
	}
	if r.GPUs != 9 || r.GPUsUsed != 8 {
		t.Errorf("%d of %d GPUs are used", r.GPUsUsed, r.GPUs)
	}
	area := share.Area(2*600*400 + 2*600*470 + 300*1000 + 1000*1000 + 2*500*1000 + 2*500*1000)
	if r.Requested != area {
		t.Errorf("requested %d, want %d", r.Requested, area)
	}
}

func TestSlicesAreListed(t *testing.T) {
	r := clean(t).check()
	var ids []string
	for _, s := range r.Slices {
		ids = append(ids, s.ID)
	}
	if want := []string{"a0", "a1", "a2", "a3", "b0", "b1", "b2", "m0-0", "m0-1", "m1-0"}; !reflect.DeepEqual(ids, want) {
		t.Errorf("slices %v, want %v", ids, want)
	}
	half := share.Share{SMRequest: 600, SMLimit: 600, QuotaRequest: 400, QuotaLimit: 400, Memory: 1000 * share.MiB}
	want := SliceState{
		Node: "a", ID: "a0", Device: "a0", Model: "A100", Healthy: true, Packing: kube.Slots, Class: share.MPS,
		Shares: []PlacedShare{
			{Pod: "team/half", Container: "main", Share: half}, {Pod: "team/half2", Container: "main", Share: half},
		},
		Requested: 480_000, Memory: 2000 * share.MiB, Capacity: 40960 * share.MiB,
	}
	if !reflect.DeepEqual(r.Slices[0], want) {
		t.Errorf("got  %+v\nwant %+v", r.Slices[0], want)
	}
	if pair := r.Slices[5]; pair.Index != 1 || pair.Shares[0].VGPU != 1 {
		t.Errorf("second vGPU of the pair: %+v", pair)
	}
}

func TestUnhealthySliceKeepsWhatRuns(t *testing.T) {
	c := newCluster(t)
	ill := gpu("x0")
	ill.Healthy = false
	c.node("x", ill)
	c.add(spec{name: "runs", node: "x", slices: []string{"x0"}, sm: 50})
	if r := c.check(); len(r.Violations) != 0 || r.Slices[0].Healthy {
		t.Errorf("got %+v", r)
	}
}

func TestOrphans(t *testing.T) {
	c := clean(t)
	c.add(spec{name: "lost", node: "a", slices: []string{"gone"}, sm: 50})
	c.add(spec{name: "stray", node: "nowhere", slices: []string{"gone"}, sm: 50})
	r := c.check()
	if len(r.Violations) != 0 || len(r.Orphans) != 2 {
		t.Fatalf("violations %+v, orphans %+v", r.Violations, r.Orphans)
	}
	if o := r.Orphans[0]; o.Pod != "team/lost" || o.Slice != "gone" || o.Node != "a" {
		t.Errorf("got %+v", o)
	}
	if o := r.Orphans[1]; o.Pod != "team/stray" || o.Slice != "" || o.Node != "nowhere" {
		t.Errorf("got %+v", o)
	}
}
