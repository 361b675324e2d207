package install_test

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"

	"github.com/gshare-dev/gshare/test/install/manifest"
)

func TestLint(t *testing.T) {
	kinds := map[string]int{}
	for _, o := range build(t, "manifests") {
		kinds[o.GetKind()]++
		found, err := manifest.Lint(o)
		if err != nil {
			t.Errorf("%s: %v", key(o), err)
		}
		for _, finding := range found {
			t.Errorf("%s: %s", key(o), finding)
		}
	}
	if kinds["Deployment"] != 1 || kinds["DaemonSet"] != 1 || kinds["ClusterRole"] < 1 || kinds["Role"] < 1 {
		t.Errorf("the checks see little: %v", kinds)
	}
}

// TestLintFinds is the negative control of the lint of the manifests.
func TestLintFinds(t *testing.T) {
	if found := manifest.LintPod(&v1.PodSpec{HostPID: true, Containers: []v1.Container{{Image: "x"}}}, false); len(found) != 11 {
		t.Errorf("a careless pod: %q", found)
	}
	for _, rule := range []rbac.PolicyRule{
		{Verbs: []string{"*"}}, {Resources: []string{"secrets"}}, {Resources: []string{"pods"}, Verbs: []string{"get", "create"}},
	} {
		t.Run(fmt.Sprint(rule.Verbs, rule.Resources), func(t *testing.T) {
			if manifest.ExcessiveRight(rule) == "" {
				t.Errorf("%v is not too much", rule)
			}
		})
	}
	for _, o := range build(t, "manifests") {
		if o.GetKind() != "DaemonSet" {
			continue
		}
		o.Object["spec"].(map[string]any)["replica"] = int64(1)
		if _, err := manifest.Lint(o); err == nil {
			t.Error("a field that a DaemonSet has not is not found")
		}
	}
}
