package profiles

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestQuotaBesideSidecar: the quota of a server is its own, also where a sidecar has a share, which the placement and the agent name first.
func TestQuotaBesideSidecar(t *testing.T) {
	placed := func(name string, class share.Isolation, quota share.PerMille) kube.PlacedContainer {
		s := share.Share{SMRequest: 500, SMLimit: 500, QuotaRequest: quota, QuotaLimit: quota, Memory: share.MiB}
		return kube.PlacedContainer{Name: name, VGPUs: []kube.PlacedVGPU{{Slice: "GPU-" + name, Class: class, Priority: share.BestEffort, Share: s}}}
	}
	for name, test := range map[string]struct {
		side, server share.Isolation
		narrow       bool
	}{
		"the server alone can be narrowed":  {share.Exclusive, share.MPS, true},
		"the sidecar alone can be narrowed": {share.MPS, share.Exclusive, false},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid", Annotations: map[string]string{}}}
			pod.Spec.InitContainers = []v1.Container{{Name: "side", RestartPolicy: new(v1.ContainerRestartPolicyAlways)}}
			pod.Spec.Containers = []v1.Container{{Name: "server", Resources: v1.ResourceRequirements{
				Limits: v1.ResourceList{kube.ResourceQuota: resource.MustParse("80")},
			}}}
			text, err := kube.EncodePlacement(kube.Placement{Node: "n", UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{
				placed("side", test.side, 1000), placed("server", test.server, 800),
			}})
			if err != nil {
				t.Fatal(err)
			}
			pod.Annotations[kube.AnnotationPlacement] = text
			text, err = kube.EncodeEnforcementStatus(kube.EnforcementStatus{Containers: []kube.ContainerEnforcement{
				{Name: "side", QuotaPercent: 20}, {Name: "server", QuotaPercent: 40},
			}})
			if err != nil {
				t.Fatal(err)
			}
			pod.Annotations[kube.AnnotationEnforcementStatus] = text
			if canNarrow(pod) != test.narrow || enforcedQuota(pod) != 40 || ownQuota(pod) != 80 {
				t.Errorf("can be narrowed %v, has %d of %d", canNarrow(pod), enforcedQuota(pod), ownQuota(pod))
			}
			pod.Annotations = nil
			if got := wantedQuota(withQuota(pod, 30)); got != 30 {
				t.Errorf("wants %d, and 30 was set", got)
			}
		})
	}
}
