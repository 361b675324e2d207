package planner

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

func tight(p *api.InferencePlan) string {
	if c := meta.FindStatusCondition(p.Status.Conditions, api.ConditionTight); c != nil {
		return string(c.Status) + " " + c.Reason + ": " + c.Message
	}
	return ""
}

// TestTight: a plan says which group will have more replicas than planned, since its rate is near to what they answer, and what they cost.
func TestTight(t *testing.T) {
	for name, test := range map[string]struct {
		answers float64 // requests a second, by the specification of checkout
		change  func(p *api.InferencePlan)
		want    string
	}{
		"room":      {25, nil, "False Room: "},
		"near":      {15, nil, "True NearRate: checkout: with requestsPerSecond 15, 14 requests/s that come at random keep 1.8 replicas, where 1 would answer them by the latencies: that costs 0.0733 USD/h more"},
		"far above": {2, nil, "True NearRate: checkout: with requestsPerSecond 2, "},
		"recommended only": {15, func(p *api.InferencePlan) { p.Spec.Mode = api.Recommend },
			"True NearRate: checkout: with requestsPerSecond 15, 14 requests/s that come at random keep 1.8 replicas"},
		"not shares": {6.2, func(p *api.InferencePlan) { p.Spec.Modes = []api.ExecutionMode{api.ModeCPU} }, "False Room: "},
		"no data":    {6.2, func(p *api.InferencePlan) { p.Spec.Profiles.ConfigMap = "other" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startApplied(t, test.change)
				edit(t, c, "checkout", &api.GPUFunction{}, func(f *api.GPUFunction) { f.Spec.Scaling.RequestsPerSecond = test.answers })
				got := c.pass(t, 3*time.Minute, usual)
				if is := tight(got); !strings.HasPrefix(is, test.want) || test.want == "" && is != "" {
					t.Errorf("%s, want %s", is, test.want)
				}
				before := c.writes
				if c.pass(t, time.Hour, usual); c.writes > before {
					t.Errorf("%d writes in an hour without a change", c.writes-before)
				}
			})
		})
	}
}
