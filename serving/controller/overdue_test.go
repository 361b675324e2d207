package controller

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
)

// bind sets a pod's node, as of now.
func bind(p *v1.Pod) {
	p.Spec.NodeName = "node-1"
	p.Status.Conditions = []v1.PodCondition{
		{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now()},
		{Type: v1.PodReady, Status: v1.ConditionFalse, LastTransitionTime: metav1.Now()},
	}
}

// startContainer sets a pod's container as running since now.
func startContainer(p *v1.Pod) {
	bind(p)
	p.Status.Phase = v1.PodRunning
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "server", State: v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
}

// TestPodThatNeverBecomesReady: a pod that is not ready in time is ended, the function gets an event, and the fleet learns that the
// instance failed.
func TestPodThatNeverBecomesReady(t *testing.T) {
	withProbe := func(f *api.GPUFunction) {
		f.Spec.Template.Spec.Containers[0].StartupProbe = &v1.Probe{InitialDelaySeconds: 60, PeriodSeconds: 10, FailureThreshold: 120, TimeoutSeconds: 1}
	}
	for name, test := range map[string]struct {
		change func(*api.GPUFunction)
		state  func(*v1.Pod)
		ends   time.Duration // 0: never
		why    string
	}{
		"runs":                     {nil, startContainer, 10 * time.Minute, "was not ready within 10m0s: waits until its readiness probe succeeds"},
		"runs, with a probe":       {withProbe, startContainer, 31 * time.Minute, "was not ready within 31m0s"},
		"waits for the kubelet":    {nil, bind, time.Hour, "was not ready within 1h0m0s: waits for the kubelet of node-1"},
		"has no node":              {nil, func(*v1.Pod) {}, 0, ""},
		"is ready":                 {nil, func(p *v1.Pod) { startContainer(p); makeReady(p) }, 0, ""},
		"starts again and again":   {nil, crashes, time.Hour, "CrashLoopBackOff"},
		"was ready an hour before": {nil, func(p *v1.Pod) { time.Sleep(time.Hour); startContainer(p) }, 10 * time.Minute, "was not ready within 10m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.run(false)
				c.pods.Create(instanceOfFunction(function(t, test.change), 1))
				c.event()
				c.update(c.one(), test.state)
				begin := time.Now()
				for {
					select {
					case e := <-c.pods.Events():
						if e.Kind != fleet.Failed {
							continue
						}
						took := time.Since(begin).Round(time.Second) // timestamps of objects have a resolution of one second
						if test.ends == 0 || took != test.ends || !strings.Contains(e.Message, test.why) {
							t.Errorf("failed after %v: %s; want %v: %s", took, e.Message, test.ends, test.why)
						}
						if left := c.all(); len(left) != 0 {
							t.Errorf("%d pods are left", len(left))
						}
						if event := <-c.recorder.Events; !strings.Contains(event, "NotReadyInTime") {
							t.Errorf("event %s", event)
						}
					case <-time.After(3 * time.Hour):
						if test.ends != 0 {
							t.Errorf("not ended within 3 h, want %v", test.ends)
						}
					}
					return
				}
			})
		})
	}
}

func crashes(p *v1.Pod) {
	bind(p)
	p.Status.Phase = v1.PodRunning
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "server", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
}
