package admission_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testQuota: a ResourceQuota limits a namespace's memory and SM-time, although users do not write sm-time.
func (c *cluster) testQuota(t *testing.T) {
	c.namespace(t, "limited", nil)
	c.limit(t, "limited", v1.ResourceList{"requests.gshare/mem": resource.MustParse("10000"), "requests.gshare/sm-time": resource.MustParse("5000")})
	c.eventually(t, "ResourceQuota", func() (bool, error) {
		_, err := c.try("limited", pod(limits("mem=10001")))
		return err != nil && strings.Contains(err.Error(), "exceeded quota"), err // until the status of the quota is known, all pods are refused
	})
	for _, step := range []struct {
		name    string
		pod     *v1.Pod
		wantErr string
	}{
		{"first", pod(limits("sm=80", "quota=50", "mem=4000")), ""},
		{"too much time", pod(limits("sm=11", "mem=1")), "requested: requests.gshare/sm-time=1100, used: requests.gshare/sm-time=4k,"},
		{"too much memory", pod(limits("sm=1", "mem=6001")), "requested: requests.gshare/mem=6001, used: requests.gshare/mem=4k,"},
		{"the rest", pod(limits("sm=10", "mem=6000")), ""},
		{"no more", pod(limits("sm=1", "mem=1")), "exceeded quota: limit"},
		{"without a share", plain(), ""},
	} {
		_, err := c.CoreV1().Pods("limited").Create(c.ctx, step.pod, metav1.CreateOptions{})
		if (err == nil) != (step.wantErr == "") || err != nil && !strings.Contains(err.Error(), step.wantErr) {
			t.Errorf("%s: %v, want %q", step.name, err, step.wantErr)
		}
	}
}

// limit creates a ResourceQuota with a status. The controller manager, which would write the status, does not run here.
func (c *cluster) limit(t *testing.T, namespace string, hard v1.ResourceList) {
	t.Helper()
	quotas := c.CoreV1().ResourceQuotas(namespace)
	quota, err := quotas.Create(c.ctx, &v1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "limit"}, Spec: v1.ResourceQuotaSpec{Hard: hard}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	quota.Status.Hard, quota.Status.Used = hard, v1.ResourceList{}
	for name := range hard {
		quota.Status.Used[name] = resource.MustParse("0")
	}
	if _, err := quotas.UpdateStatus(c.ctx, quota, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}
