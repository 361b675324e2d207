package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// planData is the profile of a model, and a price list.
const planData = `apiVersion: v1
kind: ConfigMap
metadata: {name: vision, labels: {serving.gshare.dev/plan-data: ""}}
data:
  profiles: |
    models:
    - name: vision
      share:
        curves: [{sm: 120, exclusive: {slope: 0.0060, intercept: 0.0030}}, {sm: 240, exclusive: {slope: 0.0033, intercept: 0.0027}}]
        tail: {slope: 1.1, intercept: 0}
        window: 0.1
        memoryMiB: {slope: 30, intercept: 1500}
        maxBatch: 16
  prices: |
    prices: {currency: USD, nanoPerVCPUSecond: 16000, nanoPerGBSecond: 2400, nanoPerCall: 120, nanoPerSliceSecond: 500000, nanoPerSliceGBSecond: 1500}
`

// plannedFunction is a function with that model, whose replicas answer batches as the profile says.
const plannedFunction = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: %s}
spec:
  slo: {latency: %s}
  protocol: OIP
  idempotent: true
  access: {namespaces: ["*"]}
  resources: {share: {sm: 12, quota: 30, memory: 1620Mi}}
  batching: {maxBatch: 4}
  scaling: {minReplicas: 1, requestsPerSecond: 20, window: 2s, keepShared: 1s}
  template: {spec: {containers: [{name: server, image: "` + modelImage + `", args: [--name, vision, --batch, 1=9ms, --batch, 4=27ms, --sm, "12", --input, "input:UINT8:1"]}]}}
`

// appliedPlan is a plan for two such functions.
const appliedPlan = `apiVersion: serving.gshare.dev/v1alpha1
kind: InferencePlan
metadata: {name: vision}
spec:
  model: vision
  functions: [{name: front, requestsPerSecond: 2}, {name: back, requestsPerSecond: 12}]
  modes: [Share]
  mode: %s
  profiles: {configMap: vision, key: profiles}
  prices: {configMap: vision, key: prices}
`

// TestServingPlan: while a plan is applied, the replicas of one function serve the requests of both, and the other function has no replicas.
// Once the plan is changed to recommend only, the other function has its own replicas again. No request is lost or refused meanwhile.
func TestServingPlan(t *testing.T) {
	s := startServing(t)
	s.write(t, planData)
	s.write(t, fmt.Sprintf(plannedFunction, "front", "1s"))
	s.write(t, fmt.Sprintf(plannedFunction, "back", "4s"))
	for _, name := range []string{"front", "back"} {
		s.wait(t, name+" is ready", func() bool { return s.readyFor(t, name) == 1 })
	}
	ctx, stop := context.WithCancel(s.ctx)
	defer stop()
	all := map[string]*clients{}
	for name, rate := range map[string]int{"front": 2, "back": 12} {
		c := s.newClients(t, name)
		c.path, c.body = "/v2/models/vision/infer", `{"inputs": [{"name": "input", "datatype": "UINT8", "shape": [1, 1], "data": [0]}]}`
		c.running.Go(func() { c.send(ctx, rate) })
		all[name] = c
	}
	s.write(t, fmt.Sprintf(appliedPlan, api.Apply))
	took := s.wait(t, "front serves both", func() bool {
		return s.servedBy(t, "back", "front") && len(s.pods(t, "default", api.LabelFunction, "back")) == 0
	})
	t.Logf("back has no pods %.1f s after the plan was written", took.Seconds())
	plan := &api.InferencePlan{}
	s.wait(t, "applied", func() bool {
		return s.objects.Get(s.ctx, client.ObjectKey{Namespace: "default", Name: "vision"}, plan) == nil && meta.IsStatusConditionTrue(plan.Status.Conditions, api.ConditionApplied)
	})
	t.Log(meta.FindStatusCondition(plan.Status.Conditions, api.ConditionApplied).Message)
	time.Sleep(5 * time.Second) // requests keep coming
	if n := len(s.pods(t, "default", api.LabelFunction, "front")); n != 1 {
		t.Errorf("front has %d pods", n)
	}
	s.write(t, fmt.Sprintf(appliedPlan, api.Recommend))
	took = s.wait(t, "back serves itself", func() bool { return s.servedBy(t, "back", "") && s.readyFor(t, "back") == 1 })
	t.Logf("back has its own replica %.1f s after the plan was withdrawn", took.Seconds())
	time.Sleep(2 * time.Second)
	stop()
	for name, c := range all {
		sent, failed := c.wait()
		t.Logf("%s: %d requests, %d failed, the slowest took %.2f s", name, sent, len(failed), c.slowest.Seconds())
		if len(failed) > 0 {
			t.Errorf("%s: %d of %d requests failed, such as %v", name, len(failed), sent, failed[0])
		}
	}
}

// servedBy reports whether a function is served by the replicas of host, or by its own if host is empty, and the gateways have been told so.
func (s *served) servedBy(t *testing.T, name, host string) bool {
	t.Helper()
	f := &api.GPUFunction{}
	s.read(t, "default", name, f)
	return f.Status.ServedBy == host && f.Status.Host == host
}
