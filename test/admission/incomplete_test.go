package admission_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// incompletePods lack what the policy with the defaults would fill in. The refusal names everything that is missing.
var incompletePods = map[string]struct {
	pod     *v1.Pod
	missing string
}{
	"all":             {pod(), "gshare/vgpu: 1, gshare/sm-time: 2400; spec.schedulerName: gshare"},
	"memory as well":  {pod(limits("mem=", "quota=40"), says("mem", "8Gi")), "gshare/vgpu: 1, gshare/mem: 8192, gshare/sm-time: 960; spec.schedulerName: gshare"},
	"two vGPUs":       {pod(limits("sm=200"), by("gshare-rectangle")), "gshare/vgpu: 2, gshare/sm-time: 20000"},
	"second":          {pod(limits("vgpu=1", "sm-time=2400"), another(container("second", "sm=1", "mem=1", "vgpu=1")), by("gshare")), "gshare/sm-time: 100"},
	"sidecar":         {pod(limits("vgpu=1", "sm-time=2400"), sidecar(container("model", "sm=1", "mem=1", "sm-time=100")), by("gshare")), "gshare/vgpu: 1"},
	"scheduler":       {pod(limits("vgpu=1", "sm-time=2400")), "spec.schedulerName: gshare"},
	"other scheduler": {pod(limits("vgpu=1", "sm-time=2400"), by(v1.DefaultSchedulerName)), "spec.schedulerName: gshare"},
}

// by sets the pod's scheduler name.
func by(scheduler string) change {
	return func(p *v1.Pod) { p.Spec.SchedulerName = scheduler }
}

// testIncomplete: without the policy that fills in defaults, incomplete pods are refused, and complete ones are stored unchanged.
func (c *cluster) testIncomplete(t *testing.T, completed map[string]*v1.Pod) {
	for name, tc := range incompletePods {
		t.Run(name, func(t *testing.T) {
			_, err := c.try("default", tc.pod)
			if err == nil || !strings.HasSuffix(err.Error(), "denied request: defaults: this cluster fills in nothing; write "+tc.missing) {
				t.Errorf("%v\nwant all of %q", err, tc.missing)
			}
		})
	}
	for name, tc := range goodPods {
		said := tc.pod.DeepCopy()
		kube.Complete(said)
		if diff := cmp.Diff(completed[name], c.must(t, name, said)); diff != "" {
			t.Errorf("%s (-without the policies +with them):\n%s", name, diff)
		}
	}
}
