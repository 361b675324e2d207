package faults

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// exactFit returns 20 nodes with 80 GPUs, and pods that fill them exactly in whatever order they are placed: all pods for
// one GPU model have the same size.
func exactFit() ([]*v1.Node, []*v1.Pod) {
	quarters := gpuPods("quarter", 17*4*4, 25, annotated(kube.AnnotationModel, gpuModel))
	halves := gpuPods("half", 3*4*2, 50, annotated(kube.AnnotationModel, "H200"))
	machines := append(nodes("a", 17, 4), nodes("h", 3, 4, ofModel("H200"))...)
	return machines, append(halves, quarters...)
}

func TestSchedulerIsKilledInMidBurst(t *testing.T) {
	l := newLab(t)
	machines, pods := exactFit()
	l.addNodes(machines...)
	gate := newTurnstile()
	through := controlplane.SchedulerOptions{Server: l.startProxy(gate.decide).url}
	l.addInBackground(pods)
	bound := 0
	for _, more := range []int{40, 70, 1, 100} {
		scheduler := l.ownScheduler("killed", through)
		gate.let(more)
		bound += more
		l.waitCount(bound)
		scheduler.Kill()
		if now := l.wantSound(); now != bound {
			t.Errorf("killed with %d of %d pods bound, want %d", now, len(pods), bound)
		}
	}
	gate.let(2 * len(pods))
	l.ownScheduler("killed", through)
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
	gate := newTurnstile()
	election := controlplane.SchedulerOptions{
		Server: l.startProxy(gate.decide).url, LeaderElect: true,
		LeaseDuration: 12 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 250 * time.Millisecond, // a leader that is stopped for 10 s exits
	}
	leader := l.ownScheduler("first", election)
	first := l.waitHolder("")
	standby := l.ownScheduler("second", election)
	if holder := l.waitHolder(""); holder != first {
		t.Fatalf("%s leads and not %s", holder, first)
	}
	l.addInBackground(pods)
	gate.let(100)
	l.waitCount(100)
	leader.Kill()
	began := time.Now()
	if bound := l.wantSound(); bound != 100 {
		t.Errorf("the leader was killed with %d pods bound, want 100", bound)
	}
	gate.let(2 * len(pods))
	second := l.waitHolder(first)
	t.Logf("%s took over from %s after %v", second, first, time.Since(began))
	l.waitBound(names(pods)...)
	if err := standby.Err(); err != nil {
		t.Error(err)
	}
	l.wantFull()
}

// waitHolder blocks until the lease has a holder other than the given one, and returns the holder.
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
