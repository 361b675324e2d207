package admission_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// TestPolicies queries the API server first without the policies and then with them, so that any difference is due to the
// policies.
func TestPolicies(t *testing.T) {
	c := connect(t, server)
	before := c.prepare(t)
	c.install(t)
	t.Run("incomplete", func(t *testing.T) { c.testIncomplete(t, before.good) })
	c.installDefaults(t, read(t, defaults))
	t.Run("bad", c.testBad)
	t.Run("good", func(t *testing.T) { c.testGood(t, before.good) })
	t.Run("strange", func(t *testing.T) { c.testStrange(t, before.strange) })
	t.Run("consistent", c.testConsistent)
	t.Run("update", c.testUpdate)
	t.Run("warnings", c.testWarnings)
	t.Run("debug", c.testDebug)
	t.Run("quota", c.testQuota)
	t.Run("ranges", c.testRanges)
}

// stored holds pods as the API server would store them without the policies.
type stored struct{ good, strange map[string]*v1.Pod }

// without is the negative control: without the policies, nothing refuses the bad pods or completes the good ones. It returns
// the stored pods.
func (c *cluster) without(t *testing.T) stored {
	t.Helper()
	for name, tc := range badPods {
		if _, err := c.try("default", tc.pod); err != nil {
			t.Errorf("%s: refused without the policies: %v", name, err)
		}
	}
	refused, missed, unlike := c.compare(t)
	if len(missed) < refused/2 {
		t.Errorf("of %d pods that package kube refuses, Kubernetes itself refuses all but %d: the comparison shows little", refused, len(missed))
	}
	if len(unlike) < generated/10 {
		t.Errorf("%d pods of %d are complete without the policies: the comparison shows little", generated-refused-len(unlike), generated)
	}
	s := stored{good: map[string]*v1.Pod{}, strange: map[string]*v1.Pod{}}
	for name, tc := range goodPods {
		if got := c.must(t, name, tc.pod); got.Spec.SchedulerName == kube.SchedulerName && tc.pod.Spec.SchedulerName == "" {
			t.Errorf("%s: completed without the policies", name)
		}
		completed := tc.pod.DeepCopy()
		kube.Complete(completed)
		s.good[name] = c.must(t, name, completed)
	}
	for name, p := range strangePods {
		s.strange[name] = c.must(t, name, p)
	}
	return s
}

// must is like try, for a pod that must not be refused. It clears the fields that differ between any two creations.
func (c *cluster) must(t *testing.T, name string, p *v1.Pod) *v1.Pod {
	t.Helper()
	got, err := c.try("slo", p)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	got.Name, got.UID, got.CreationTimestamp, got.ManagedFields = "", "", metav1.Time{}, nil
	return got
}

// testStrange: a pod that requests none of gshare's resources is stored as without the policies, whatever else it requests.
func (c *cluster) testStrange(t *testing.T, before map[string]*v1.Pod) {
	for name, p := range strangePods {
		if diff := cmp.Diff(before[name], c.must(t, name, p)); diff != "" {
			t.Errorf("%s (-before +after):\n%s", name, diff)
		}
	}
}

var strangePods = map[string]*v1.Pod{
	"plain":         plain(),
	"another's GPU": plain(limits("nvidia.com/gpu=1", "cpu=2"), env("NVIDIA_VISIBLE_DEVICES"), env("LD_PRELOAD")),
	"words alone":   plain(says("class", "gold"), says("isolation", "swap"), says("sm-limit", "x")),
	"all rights":    plain(hostPID, another(privileged(container("root"))), initially(container("init")), hostPath("/dev/nvidia0")),
	"like a name":   plain(limits("gshare.dev/sm=1", "example.com/gshare=2")),
}
