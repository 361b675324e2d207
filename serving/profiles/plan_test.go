package profiles

import (
	"testing"

	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
)

// TestPlanOfProfiledFunction: what a profile recommends to its function changes nothing of what is measured. Otherwise it would be measured again without
// end.
func TestPlanOfProfiledFunction(t *testing.T) {
	template := someProfile()
	for name, change := range map[string]func(*api.GPUFunction){
		"says only its objective": func(*api.GPUFunction) {},
		"names the profile":       func(f *api.GPUFunction) { f.Spec.ProfileRef = &api.ProfileReference{Name: template.Name} },
		"has a share of its own": func(f *api.GPUFunction) {
			f.Spec.Resources.Share = &api.Share{SM: new(int64(50)), Memory: "1Gi"}
			f.Spec.Scaling.RequestsPerSecond = 10
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &api.GPUFunction{Spec: api.GPUFunctionSpec{SLO: template.Spec.SLO, Protocol: api.OIP, Template: template.Spec.Template}}
			f.Namespace, f.Name = template.Namespace, template.Name
			change(f)
			before, err := planOf(template, f)
			if err != nil {
				t.Fatal(err)
			}
			f.Status.Profiled = &api.ProfileRecommendation{SM: 20, Quota: 100, Memory: "384Mi", MaxBatch: 4, RequestsPerSecond: 12}
			after, err := planOf(template, f)
			if err != nil || after.hash != before.hash {
				t.Errorf("another plan, %v: batches up to %d, before %d", err, after.search.MaxBatch, before.search.MaxBatch)
			}
			f.Spec.SLO.Latency = "40ms"
			if other, err := planOf(template, f); err != nil || other.hash == before.hash {
				t.Errorf("the objective does not count: %v", err)
			}
		})
	}
}
