package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/test/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	looked = 2 * time.Second      // period in which the use of SMs is measured
	wide   = 5 * time.Millisecond // kernels that fill all SMs take at least this long, others less
)

// elasticPod returns a pod of an elastic slice whose program waits until begin is called.
func elasticPod(name string, class share.Priority, sm, limit int64, program []string) *v1.Pod {
	pod := cluster.Pod(name, "sh", "-c", "until test -e /go; do sleep 0.1; done; exec "+strings.Join(program, " "))
	pod.Spec.Containers[0].Image = workload
	pod.Annotations = map[string]string{kube.AnnotationSMLimit: fmt.Sprint(limit), kube.AnnotationClass: string(class)}
	return ask(pod, sm, 100, 1024)
}

// runsElastic waits until a pod runs and its enforcement status is published, and returns it.
func (a *agents) runsElastic(ctx context.Context, t *testing.T, name string, limit int64) *v1.Pod {
	t.Helper()
	pod, err := a.WaitPod(ctx, name, cluster.IsRunning)
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.Nodes[0].Exec(ctx, pod, "main", "sh", "-c", "echo $CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
	if err != nil || strings.TrimSpace(string(out)) != fmt.Sprint(limit) {
		t.Errorf("%s has a cap of %q (%v)", name, out, err)
	}
	a.waitEnforcement(ctx, t, name, "MPS at the limit, hook and token server below it", true)
	return pod
}

// begin lets the pod's program start its work, and waits for its first kernel.
func (a *agents) begin(ctx context.Context, t *testing.T, pod *v1.Pod) {
	t.Helper()
	if _, err := a.Nodes[0].Exec(ctx, pod, "main", "touch", "/go"); err != nil {
		t.Fatal(err)
	}
	a.computes(ctx, t, pod)
}

// press starts another process in a pod, which uses all SMs that it can get. ended waits for that process to end.
func (a *agents) press(ctx context.Context, t *testing.T, pod *v1.Pod, length time.Duration) (ended func()) {
	t.Helper()
	from := a.gpus["GPU-0"].Clock().Now()
	var now unix.Timespec // the simulation uses the same clock as programs
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := a.Nodes[0].Exec(ctx, pod, "main", spin(wide, 100, "sync=8", fmt.Sprint("until=", now.Nano()+length.Nanoseconds()))...)
		done <- err
	}()
	for a.gpus.wide(t, pod, from, a.gpus["GPU-0"].Clock().Now()) == 0 {
		select {
		case err := <-done:
			t.Fatalf("the burst has ended: %v", err)
		case <-ctx.Done():
			t.Fatalf("%s does not burst", pod.Name)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return func() {
		t.Helper()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// wide returns the percentage of a period during which the pod ran kernels that fill all SMs available to it.
func (g gpus) wide(t *testing.T, pod *v1.Pod, from, to time.Duration) float64 {
	t.Helper()
	var sum time.Duration
	for _, pid := range pidsOf(t, pod) {
		for _, s := range g["GPU-0"].Spans(pid) {
			if s.End-s.Start >= wide {
				sum += max(0, min(s.End, to)-max(s.Start, from))
			}
		}
	}
	return 100 * sum.Seconds() / (to - from).Seconds()
}

// waitSMs waits until the wide kernels of the pod, whose cap is its limit, use between least and most percent of the
// SM-time.
func (a *agents) waitSMs(ctx context.Context, t *testing.T, pod *v1.Pod, limit, least, most float64) {
	t.Helper()
	clock := a.gpus["GPU-0"].Clock()
	for {
		from := clock.Now()
		time.Sleep(looked) // the measurement takes real time
		got := a.gpus.wide(t, pod, from, clock.Now()) * limit / 100
		t.Logf("%s has %.1f%% of the SM-time", pod.Name, got)
		if got >= least && got <= most {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s has %.1f%% of the SM-time, want %v to %v", pod.Name, got, least, most)
		}
	}
}

// annotate sets the SM limit annotation of a running pod.
func (a *agents) annotate(ctx context.Context, t *testing.T, pod *v1.Pod, limit string) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{kube.AnnotationSMLimit: limit}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Client().CoreV1().Pods("default").Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}
