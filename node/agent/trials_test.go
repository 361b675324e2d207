package agent

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestTrialQuota: the server of a trial has the quota that its annotation says, up to that of its share, also after a restart of the agent, and its
// enforcement status says so.
func TestTrialQuota(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	pod := placed("a", "GPU-0", 40, 80)
	set := func(quota string) {
		changed := pod.DeepCopy()
		changed.Annotations[kube.AnnotationTrialQuota] = quota
		r.kubelet.AddPod(changed)
	}
	set("80")
	if _, err := r.createSoon("a", r.admitted("a")); err != nil {
		t.Fatal(err)
	}
	quota := func() (now share.PerMille) {
		for _, g := range r.granter.grants.all() {
			if s, ok := r.granter.grants.serviceOf(g.ID()); ok && g.UID == types.UID("a") {
				now = s.container.Status().VGPUs[0].QuotaRequest
			}
		}
		return now
	}
	r.wait("quota of the share", func() bool { return quota() == 800 && r.enforced("a", "") && !r.enforced("a", "quotaPercent") })
	r.wait("its work", func() bool { return r.enforced("a", `"counts":[{"ms":0,"busyMs":0,"launches":0}`) })
	set("20")
	r.wait("less", func() bool { return quota() == 200 && r.enforced("a", `"quotaPercent":20`) })
	set("60")
	r.wait("more", func() bool { return quota() == 600 && r.enforced("a", `"quotaPercent":60`) })
	r.stop()
	r.start()
	r.wait("the quota, with a later agent", func() bool { return quota() == 600 })
	r.kubelet.AddPod(pod)
	r.wait("quota of the share without an annotation", func() bool { return quota() == 800 && !r.enforced("a", "quotaPercent") })
}

// TestWorkOfNeighbours: annotated pods that share a slice are no trials. They get the quota that they say, but no counts, each of which is a write of the pod.
func TestWorkOfNeighbours(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	for _, name := range []string{"a", "b"} {
		pod := placed(name, "GPU-0", 40, 80)
		r.kubelet.AddPod(pod)
		if _, err := r.createSoon(name, r.admitted(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		pod := placed(name, "GPU-0", 40, 80)
		pod.Annotations[kube.AnnotationTrialQuota] = "20"
		r.kubelet.AddPod(pod)
	}
	for _, name := range []string{"a", "b"} {
		r.wait("quota of "+name, func() bool { return r.enforced(name, `"quotaPercent":20`) })
		if r.enforced(name, "counts") {
			t.Errorf("the work of %s is counted", name)
		}
	}
}
