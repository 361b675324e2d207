package cluster_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	traffic "github.com/gshare-dev/gshare/serving/load"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// onlyObjective is a function that does not say what a replica needs or can do. Its batches keep 20 % of the SMs busy; with half as many SMs, they take
// twice as long.
const onlyObjective = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: resnet50}
spec:
  slo: {latency: 500ms}
  protocol: OIP
  access: {namespaces: ["*"]}
  template:
    spec:
      terminationGracePeriodSeconds: 5
      containers:
      - name: server
        image: "` + modelImage + `"
        args: [--name, resnet50, --batch, 1=50ms, --batch, 32=1600ms, --sm, "20", --weights, 300Mi, --input, "input:UINT8:1"]
        resources: {requests: {cpu: 100m}} # without, whatever else runs on this machine comes first
`

// The load while the function is measured.
const (
	steadyRate  = 4 // requests per second
	steadyAfter = 20 * time.Second
	profileTime = 12 * time.Minute // at most: a search has at most 8 trials, of at most half a minute each
)

// TestServingFirstProfile: a function that states only its objective is measured automatically. Under a steady load, it moves from a whole GPU to the
// share that it needs, with as much memory as its server was seen to use. No request is lost, and the objective is met throughout.
func TestServingFirstProfile(t *testing.T) {
	s := startServing(t)
	var stop context.CancelFunc
	s.ctx, stop = context.WithTimeout(t.Context(), 20*time.Minute)
	defer stop()
	s.write(t, onlyObjective)
	s.wait(t, "known to the controller", func() bool { return s.function(t).Status.ObservedGeneration > 0 })
	if err := s.askFirst(t, "resnet50"); err != nil {
		t.Fatal(err)
	}
	before := s.heldBy(t)
	s.wait(t, "Unprofiled", func() bool { return s.readyReason(t) == "Unprofiled" })
	if before.time != 1 {
		t.Fatalf("begins with %v", before)
	}
	first := s.pods(t, "default", api.LabelFunction, "resnet50")[0].UID

	var ended atomic.Bool
	results := make(chan *traffic.Result, 1)
	go func() {
		result, err := traffic.Run(s.ctx, traffic.Plan{Length: time.Hour, SLO: 500 * time.Millisecond, Schedule: func(yield func(time.Duration) bool) {
			for n := 0; !ended.Load() && yield(time.Duration(n)*time.Second/steadyRate); n++ {
			}
		}}, s.inferSender(t, "resnet50"), nil)
		if err != nil {
			t.Error(err)
		}
		results <- result
	}()
	profile := &api.GPUProfile{}
	err := utilwait.PollUntilContextTimeout(s.ctx, time.Second, profileTime, true, func(context.Context) (bool, error) {
		err := s.objects.Get(s.ctx, client.ObjectKey{Namespace: "default", Name: "resnet50"}, profile)
		return err == nil && meta.IsStatusConditionTrue(profile.Status.Conditions, api.ConditionComplete), client.IgnoreNotFound(err)
	})
	for _, p := range profile.Status.Points {
		t.Logf("%+v", p)
	}
	if err != nil {
		t.Fatalf("%v: %+v", err, profile.Status)
	}
	best := profile.Status.Recommended
	if best == nil {
		t.Fatalf("%+v", profile.Status.Conditions)
	}
	began := time.Now()
	s.wait(t, "moved to its share", func() bool {
		pods := s.pods(t, "default", api.LabelFunction, "resnet50")
		if len(pods) == 0 || s.readyReason(t) == "Unprofiled" || s.isThere(t, first) {
			return false
		}
		for _, p := range pods {
			if _, ready := api.Address(&p); !ready {
				return false
			}
		}
		return true
	})
	moved := time.Since(began)
	after := s.heldBy(t)
	time.Sleep(steadyAfter)
	ended.Store(true)
	r := <-results
	t.Logf("\n%s", s.kubectl(t, "get", "gpuprofiles,gpufunctions,fastpods"))
	t.Logf("%d requests in %.0f s: failures %v, %.2f %% within 500 ms, p50 %.0f ms, p99 %.0f ms", r.Scheduled, r.Seconds, r.Failures, 100*r.SLO.Ratio, r.Latency.P50, r.Latency.P99)
	t.Logf("reserved: %v, then %v; the move took %.1f s, the profile %d trials, %d servers and %d GPU-seconds", before, after, moved.Seconds(),
		profile.Status.Trials, profile.Status.Targets, profile.Status.GPUSeconds)
	trials := profile.Status.Trials
	if err := s.objects.Get(s.ctx, client.ObjectKey{Namespace: "default", Name: "resnet50"}, profile); err != nil || profile.Status.Trials != trials ||
		!meta.IsStatusConditionTrue(profile.Status.Conditions, api.ConditionComplete) {
		t.Errorf("what the function got had the profile measured again: %v, %d trials of %d", err, profile.Status.Trials, trials)
	}
	if r.Answered != r.Scheduled {
		t.Errorf("%d of %d requests were lost: %v", r.Scheduled-r.Answered, r.Scheduled, r.Failures)
	}
	if r.SLO.Ratio < 0.99 {
		t.Errorf("%.2f %% of the requests were in time, want 99 %%", 100*r.SLO.Ratio)
	}
	if after.time > 0.5*before.time || after.memoryMiB > before.memoryMiB/10 {
		t.Errorf("reserved %v, before %v: want at most half of the GPU time and a tenth of the memory", after, before)
	}
}

// holding is what a function's pods hold, as the scheduler counts it.
type holding struct {
	pods      int
	time      float64 // in whole GPUs
	memoryMiB int64
}

func (r holding) String() string {
	return fmt.Sprintf("%d pods with %.2f GPUs and %d MiB", r.pods, r.time, r.memoryMiB)
}

func (s *served) heldBy(t *testing.T) (sum holding) {
	t.Helper()
	for _, p := range s.pods(t, "default", api.LabelFunction, "resnet50") {
		memory := p.Spec.Containers[0].Resources.Limits[kube.ResourceMemory]
		sum.pods++
		sum.time += reserved(&p)
		sum.memoryMiB += memory.Value()
	}
	return sum
}

func (s *served) readyReason(t *testing.T) string {
	t.Helper()
	if c := meta.FindStatusCondition(s.function(t).Status.Conditions, api.ConditionReady); c != nil {
		return c.Reason
	}
	return ""
}

// isThere reports whether a function's pod still exists, even if it is terminating.
func (s *served) isThere(t *testing.T, uid types.UID) bool {
	t.Helper()
	list := &v1.PodList{}
	if err := s.objects.List(s.ctx, list, client.InNamespace("default"), client.HasLabels{api.LabelFunction}); err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Items {
		if p.UID == uid {
			return true
		}
	}
	return false
}

// inferSender sends inference requests with one row to both gateways.
func (s *served) inferSender(t *testing.T, function string) traffic.Sender {
	t.Helper()
	sender := s.sender(t, function).(*traffic.HTTP)
	sender.URL = "http://gateway/v2/models/" + function + "/infer"
	sender.Header = http.Header{"Host": {function + ".default"}, "Content-Type": {"application/json"}}
	sender.Body = []byte(`{"inputs": [{"name": "input", "datatype": "UINT8", "shape": [1, 1], "data": [0]}]}`)
	return sender
}
