package main

import (
	"strings"
	"testing"
)

// TestPlanTight: gshare plan warns where a group will have more replicas than planned, and not where there is room.
func TestPlanTight(t *testing.T) {
	for rate, want := range map[string]bool{"1": false, "46": true} {
		t.Run(rate, func(t *testing.T) {
			cmd := root()
			var out strings.Builder
			cmd.SetOut(&out)
			cmd.SetArgs([]string{"plan", "--modes", "share",
				"--applications", writeFile(t, "applications.yaml", "applications: [{name: app, model: m, slo: 0.1, rate: "+rate+"}]\n"),
				"--profiles", writeFile(t, "profiles.yaml", `models:
- name: m
  share:
    curves: [{sm: 1000, exclusive: {slope: 0.010, intercept: 0}}]
    tail: {slope: 1.0, intercept: 0}
    window: 0.1
    memoryMiB: {slope: 0, intercept: 1000}
    maxBatch: 1
`),
				"--prices", writeFile(t, "prices.yaml", "prices: {currency: USD, nanoPerSliceSecond: 500000, nanoPerSliceGBSecond: 1500}\n"),
			})
			if err := cmd.Execute(); err != nil {
				t.Fatal(err)
			}
			if got := strings.Contains(out.String(), "warning: policy gshare: app: with requestsPerSecond"); got != want {
				t.Errorf("%s", &out)
			}
			t.Logf("%s", &out)
		})
	}
}
