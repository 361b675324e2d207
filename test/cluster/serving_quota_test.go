package cluster_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// quotaProfile tries one share with two quotas.
const quotaProfile = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUProfile
metadata: {name: quotas}
spec:
  slo: {latency: 1s}
  protocol: OIP
  memory: 1Gi
  search: {strategy: Grid, sm: [40], quota: [40, 80]}
  template:
    spec:
      containers:
      - {name: server, image: "` + modelImage + `", args: [--name, quotas, --batch, 1=20ms, --input, "input:UINT8:1"]}
`

// TestServingQuotas measures a server with two quotas of one share. The node's agent changes the quota of the pod while it
// runs.
func TestServingQuotas(t *testing.T) {
	s := startServing(t)
	s.write(t, quotaProfile)
	profile := func() *api.GPUProfile {
		p := &api.GPUProfile{}
		s.read(t, "default", "quotas", p)
		return p
	}
	s.wait(t, "the second quota of the first server", func() bool {
		for _, p := range s.pods(t, "default", api.LabelProfile, "quotas") {
			status, present, err := kube.EnforcementStatusOf(&p)
			if present && err == nil && len(status.Containers) > 0 && status.Containers[0].QuotaPercent == 40 {
				return true
			}
		}
		return false
	})
	if to := profile().Status.Target; to == nil || to.Number != 1 || to.Quota != 40 {
		t.Errorf("the second quota has the server %+v", to)
	}
	s.wait(t, "complete", func() bool {
		return meta.IsStatusConditionTrue(profile().Status.Conditions, api.ConditionComplete)
	})
	points := profile().Status.Points
	if len(points) != 2 || points[0].Quota != 80 || points[1].Quota != 40 || !(points[1].Plateau < 0.7*points[0].Plateau) {
		t.Errorf("%+v, want half as much time to answer about half as many requests", points)
	}
}
