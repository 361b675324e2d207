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

// TestLimitOfOtherContainer: a change of one container leaves the annotation of a limit that another container uses, and what it then says fits.
func TestLimitOfOtherContainer(t *testing.T) {
	for name, tc := range map[string]struct {
		field string
		class share.Isolation
		part  func(request, limit share.PerMille) share.Share
		want  string
	}{
		"SM limit": {share.FieldSMLimit, share.Elastic, func(request, limit share.PerMille) share.Share {
			return share.Share{SMRequest: request, SMLimit: limit, QuotaRequest: 1000, QuotaLimit: 1000, Memory: gib}
		}, "sm 50>40 @n; sm 30>20 @n; sm 30>20 @n"},
		"quota limit": {share.FieldQuotaLimit, share.MPS, func(request, limit share.PerMille) share.Share {
			return share.Share{SMRequest: 1000, SMLimit: 1000, QuotaRequest: request, QuotaLimit: limit, Memory: gib}
		}, "quota 50>35 @n; quota 30>15 @n; quota 30>15 @n"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf(tc.part(500, 500), 1)
			pod.Request.Isolation = tc.class
			for _, c := range []string{"b", "c"} {
				pod.Request.Containers = append(pod.Request.Containers, share.Container{Name: c, VGPUs: 1, Share: tc.part(300, 500)})
			}
			q := question(pod, nodeOf("n", gpu("a", "A100")))
			q.Annotations = map[string]string{tc.field: "50"}
			if got := text(q.Changes()); got != tc.want {
				t.Errorf("changes: %q, want %q", got, tc.want)
			}
		})
	}
}
