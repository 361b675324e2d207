package faults

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/cmd/gshare-sandbox/controlplane"
	"github.com/gshare-dev/gshare/cmd/gshare-sandbox/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// exactFit gives 20 nodes with 80 GPUs and pods that fill them exactly, in whatever order they come: all pods of one model
// of GPU are of one size.
func exactFit() ([]*v1.Node, []*v1.Pod) {
	quarters := gpuPods("quarter", 17*4*4, 25, annotated(kube.AnnotationModel, gpuModel))
	halves := gpuPods("half", 3*4*2, 50, annotated(kube.AnnotationModel, "H200"))
	machines := append(nodes("a", 17, 4), nodes("h", 3, 4, ofModel("H200"))...)
	return machines, append(halves, quarters...)
}

// addInBackground creates the pods while the test goes on, and has them all when the test ends.
func (l *lab) addInBackground(pods []*v1.Pod) {
	created := make(chan error, 1)
	go func() { created <- cluster.CreatePods(l.ctx, l.client, pods) }()
	l.t.Cleanup(func() {
		if err := <-created; err != nil {
			l.t.Error(err)
		}
	})
}

// wantFull checks that no part of any GPU is left.
func (l *lab) wantFull() {
	l.t.Helper()
	if report := l.finish(); report.Requested != share.Area(report.GPUs)*share.WholeArea {
		l.t.Errorf("%d of %d GPUs' worth are in use", report.Requested/share.WholeArea, report.GPUs)
	}
}

// wantSound checks that no rule is broken in the midst of things, and counts the bound pods.
func (l *lab) wantSound() (bound int) {
	l.t.Helper()
	report, all := l.audit()
	l.reportViolations(report)
	for i := range all {
		if all[i].Spec.NodeName != "" {
			bound++
		}
	}
	return bound
}

func TestSchedulerIsKilledInMidBurst(t *testing.T) {
	l := newLab(t)
	machines, pods := exactFit()
	l.addNodes(machines...)
	scheduler := l.ownScheduler("killed", controlplane.SchedulerOptions{})
	l.addInBackground(pods)
	for _, after := range []int{30, 110, 200} {
		l.waitCount(after)
		scheduler.Kill()
		t.Logf("killed with %d of %d pods bound", l.wantSound(), len(pods))
		scheduler = l.ownScheduler("killed", controlplane.SchedulerOptions{})
	}
	l.waitBound(names(pods)...)
	l.wantFull()
}

func TestLeaderIsKilledInMidBurst(t *testing.T) {
	l := newLab(t)
	err := l.client.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(l.ctx, "kube-scheduler", metav1.DeleteOptions{})
	if !apierrors.IsNotFound(err) {
		l.must(err)
	}
	machines, pods := exactFit()
	l.addNodes(machines...)
	election := controlplane.SchedulerOptions{
		LeaderElect: true, LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: 250 * time.Millisecond,
	}
	leader := l.ownScheduler("first", election)
	first := l.waitHolder("")
	standby := l.ownScheduler("second", election)
	if holder := l.waitHolder(""); holder != first {
		t.Fatalf("%s leads and not %s", holder, first)
	}
	l.addInBackground(pods)
	l.waitCount(60)
	leader.Kill()
	began := time.Now()
	second := l.waitHolder(first)
	t.Logf("%s took over from %s after %v", second, first, time.Since(began))
	l.waitBound(names(pods)...)
	if err := standby.Err(); err != nil {
		t.Error(err)
	}
	l.wantFull()
}

// waitHolder returns who leads when that is anybody but the one given.
func (l *lab) waitHolder(not string) string {
	l.t.Helper()
	var holder string
	err := wait.PollUntilContextCancel(l.ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		lease, err := l.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-scheduler", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			return false, nil
		}
		holder = *lease.Spec.HolderIdentity
		return holder != "" && holder != not, nil
	})
	if err != nil {
		l.t.Fatalf("nobody but %q leads: %v", holder, err)
	}
	return holder
}
