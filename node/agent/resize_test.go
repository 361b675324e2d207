package agent

import (
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// elastic returns a pod that is placed on GPU-0 with SMs between a request and a limit.
func elastic(uid string, sm, limit share.PerMille) *v1.Pod {
	pod := placed(uid, "GPU-0", int64(sm/10), 100)
	p, _, err := kube.PlacementOf(pod)
	if err != nil {
		panic(err)
	}
	v := &p.Containers[0].VGPUs[0]
	v.Class, v.Priority, v.Share.SMLimit = share.Elastic, share.SLO, limit
	text, err := kube.EncodePlacement(p)
	if err != nil {
		panic(err)
	}
	pod.Annotations = map[string]string{kube.AnnotationPlacement: text, kube.AnnotationSMLimit: strings.TrimSuffix(limit.Percent(), "%")}
	return pod
}

// served returns the pod's only vGPU at the token server, and its current SM limit.
func (r *fixture) served(uid string) (v tokenserver.VGPU, now share.PerMille) {
	for _, g := range r.granter.grants.all() {
		if s, ok := r.granter.grants.serviceOf(g.ID()); ok && g.UID == types.UID(uid) {
			v, now = s.container.VGPUs[0], s.container.Status().VGPUs[0].CurrentSMLimit
		}
	}
	return v, now
}

func (r *fixture) enforced(uid, part string) bool {
	r.cluster.mu.Lock()
	defer r.cluster.mu.Unlock()
	return strings.Contains(r.cluster.enforced[types.UID(uid)], part)
}

// setLimit changes the SM limit in the annotation of a pod.
func (r *fixture) setLimit(pod *v1.Pod, limit string) {
	pod.Annotations[kube.AnnotationSMLimit] = limit
	r.kubelet.AddPod(pod)
}

// TestElastic: the node offers the class, serves it by block tokens under a cap at the limit, and applies the limit of the pod's annotation,
// between the request and that cap, also after a restart.
func TestElastic(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	for _, s := range r.devices.currentInventory().Published().Slices {
		if !slices.Contains(s.Classes, share.Elastic) {
			t.Errorf("slice %s offers %v", s.ID, s.Classes)
		}
	}
	pod := elastic("a", 300, 600)
	r.kubelet.AddPod(pod)
	spec, err := r.createSoon("a", r.admitted("a"))
	if err != nil || !strings.Contains(spec, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=60\"") {
		t.Fatalf("%v; the CDI file is %s", err, spec)
	}
	if v, now := r.served("a"); !v.Elastic || v.Priority != share.SLO || v.SMRequest != 300 || now != 600 {
		t.Errorf("it is served as %+v with a limit of %v", v, now)
	}
	r.wait("enforcement status", func() bool { return r.enforced("a", "MPS at the limit") })

	limit := func() share.PerMille { _, now := r.served("a"); return now }
	r.setLimit(pod, "40")
	r.wait("lower limit", func() bool { return limit() == 400 })
	r.wait("report and event of it", func() bool { return r.enforced("a", "changed to 40%") && r.cluster.hasEvent("GPULimitChanged") })
	for said, why := range map[string]string{"70": "is not between", "20": "is not between", "much": "not a whole number"} {
		t.Run(said, func(t *testing.T) {
			r.setLimit(pod, said)
			r.wait("refusal of "+said, func() bool { return r.enforced("a", why) && r.cluster.hasEvent("GPULimitRefused") })
			if now := limit(); now != 400 {
				t.Errorf("the limit is %v", now)
			}
			r.setLimit(pod, "40")
			r.wait("recovery", func() bool { return r.enforced("a", "changed to 40%") })
		})
	}
	r.stop()
	r.start()
	r.wait("the changed limit, with a later agent", func() bool { return limit() == 400 })
	r.setLimit(pod, "60")
	r.wait("limit as it was", func() bool { return limit() == 600 && !r.enforced("a", "changed to") })

	fixed := r.pod("b", "GPU-0", 20, 50) // the scheduler would not have placed it there
	if spec, err := r.create("b", fixed); err == nil {
		t.Errorf("two classes on one slice: %s", spec)
	}
	r.kubelet.RemovePod("a")
	r.wait("release", func() bool { return len(r.grants()) == 0 })
	r.mustCreate("b", fixed, "GPU-0")
}
