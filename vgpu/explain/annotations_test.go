package explain

import (
	"testing"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestChangesOfAnnotations: a change names the annotations of the pod that would contradict it otherwise, so that the admission policies accept it.
func TestChangesOfAnnotations(t *testing.T) {
	half, turns := shareOf(500, 1000, 10*gib), shareOf(600, 500, gib)
	for name, tc := range map[string]struct {
		pod   *packing.Pod
		says  map[string]string
		there share.Share // on the node's only GPU
		want  string
	}{
		"memory":            {podOf(half, 1), map[string]string{share.FieldMemorySize: "10Gi"}, shareOf(100, 500, 35*gib), "mem 10240>5120 and mem 10Gi>5120Mi @n"},
		"memory of another": {podOf(half, 1), map[string]string{share.FieldMemorySize: "11Gi"}, shareOf(100, 500, 35*gib), "mem 10240>5120 @n"},
		"SM limit":          {podOf(half, 1), map[string]string{share.FieldSMLimit: "50"}, shareOf(600, 1000, gib), "sm 50>40 and sm-limit 50> @n"},
		"quota limit":       {podOf(turns, 1), map[string]string{share.FieldQuotaLimit: "50"}, shareOf(500, 600, gib), "sm 60>50 @n; quota 50>35 and quota-limit 50> @n"},
	} {
		t.Run(name, func(t *testing.T) {
			q := question(tc.pod, occupied(nodeOf("n", gpu("a", "A100")), 0, "ml", share.MPS, tc.there))
			q.Annotations = tc.says
			if got := text(q.Changes()); got != tc.want {
				t.Errorf("changes: %q, want %q", got, tc.want)
			}
		})
	}
	two := podOf(half, 1)
	two.Request.Containers = append(two.Request.Containers, share.Container{Name: "side", VGPUs: 1, Share: half})
	both := Search{Pod: two, Annotations: map[string]string{share.FieldMemorySize: "10Gi"}}
	if e := newEdit("main", share.FieldMemory, 10240, 5120); len(both.memoryAnnotation(e)) > 0 {
		t.Errorf("the annotation also holds for another container: %+v", both.memoryAnnotation(e))
	}
	q := question(podOf(shareOf(500, 1000, 100*gib), 1), nodeOf("n", gpu("a", "A100"), gpu("b", "A100"), gpu("c", "A100")))
	q.Annotations = map[string]string{share.FieldSMLimit: "50"}
	changes := q.Changes()
	if got, want := text(changes[len(changes)-1:]), "vgpu 1>3 and sm 50>300 and mem 102400>102402 and sm-limit 50> @n"; got != want {
		t.Errorf("whole GPUs: %q, want %q", got, want)
	}
}
