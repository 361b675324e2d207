package cluster_test

import (
	"context"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

const (
	limited   = "limited"
	quotaMem  = "requests." + kube.ResourceMemory
	quotaTime = "requests." + kube.ResourceSMTime
)

// quota checks that a namespace with a ResourceQuota gets as much memory and SM-time as the quota allows, and gets again what deleted
// pods release. Users do not write gshare/sm-time themselves.
func (i *installed) quota(t *testing.T) {
	i.kubectl(t, "create", "namespace", limited)
	i.kubectl(t, "create", "quota", "gpus", "-n", limited, "--hard="+string(quotaTime)+"=5000,"+string(quotaMem)+"=10000")
	i.waitUsed(t, 0, 0)
	for _, step := range []struct {
		name, wantErr     string
		sm, percent, mem  int64
		usedTime, usedMem int64
	}{
		{"first", "", 80, 50, 4000, 4000, 4000},
		{"long", "requested: requests.gshare/sm-time=1100, used: requests.gshare/sm-time=4k, limited: requests.gshare/sm-time=5k", 11, 100, 1, 4000, 4000},
		{"large", "requested: requests.gshare/mem=6001, used: requests.gshare/mem=4k, limited: requests.gshare/mem=10k", 1, 100, 6001, 4000, 4000},
		{"rest", "", 10, 100, 6000, 5000, 10000},
		{"more", "exceeded quota: gpus", 1, 100, 1, 5000, 10000},
	} {
		err := i.createLimited(step.name, step.sm, step.percent, step.mem)
		if (err == nil) != (step.wantErr == "") || err != nil && !strings.Contains(err.Error(), step.wantErr) {
			t.Errorf("%s: %v, want %q", step.name, err, step.wantErr)
		}
		i.waitUsed(t, step.usedTime, step.usedMem)
	}
	i.kubectl(t, "-n", limited, "wait", "pod", "--all", "--for=condition=Ready", "--timeout=120s")
	i.kubectl(t, "-n", limited, "delete", "pod", "first")
	i.waitUsed(t, 1000, 6000)
	if err := i.createLimited("again", 40, 100, 4000); err != nil {
		t.Errorf("after a pod has ended: %v", err)
	}
	i.kubectl(t, "delete", "namespace", limited)
	i.waitGrants(i.ctx, t, i.Nodes[0], 0)
}

func (i *installed) createLimited(name string, sm, percent, mem int64) error {
	pod := cluster.Pod(name, "sleep", "inf")
	pod.Namespace = limited
	pod.Spec.Containers[0].Resources.Limits = limits(sm, percent, mem)
	_, err := i.Client().CoreV1().Pods(limited).Create(i.ctx, i.written(pod), metav1.CreateOptions{})
	return err
}

// waitUsed blocks until the ResourceQuota counts the given amounts as used.
func (i *installed) waitUsed(t *testing.T, smTime, mem int64) {
	t.Helper()
	var used v1.ResourceList
	err := wait.PollUntilContextTimeout(i.ctx, 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		quota, err := i.Client().CoreV1().ResourceQuotas(limited).Get(ctx, "gpus", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		used = quota.Status.Used
		return is(used, quotaTime, smTime) && is(used, quotaMem, mem), nil
	})
	if err != nil {
		t.Fatalf("%v is used, want sm-time %d, mem %d: %v", used, smTime, mem, err)
	}
}

func is(list v1.ResourceList, name v1.ResourceName, want int64) bool {
	q, counted := list[name]
	return counted && q.Cmp(*resource.NewQuantity(want, resource.DecimalSI)) == 0
}
