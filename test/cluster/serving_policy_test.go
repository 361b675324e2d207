package cluster_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// ofTeam contains a namespace that may have one pod, and a FaSTPod and a function there that want two.
const ofTeam = `apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: serving.gshare.dev/v1alpha1
kind: SharePolicy
metadata: {name: teams}
spec: {tenants: [{namespace: team, maxReplicas: 1}]}
---
apiVersion: serving.gshare.dev/v1alpha1
kind: FaSTPod
metadata: {name: bert, namespace: team}
spec:
  share: {sm: 5, quota: 40, memory: 64Mi}
  template: {spec: {containers: [{name: server, image: "` + modelImage + `", args: [--batch, 1=10ms]}]}}
`

const functionOfTeam = `apiVersion: serving.gshare.dev/v1alpha1
kind: GPUFunction
metadata: {name: chat, namespace: team}
spec:
  slo: {latency: 5s}
  scaling: {minReplicas: 1, requestsPerSecond: 10}
  resources: {share: {sm: 5, quota: 40, memory: 64Mi}}
  template: {spec: {containers: [{name: server, image: "` + modelImage + `", args: [--batch, 1=10ms]}]}}
`

// obeysPolicy: if a namespace may have only one pod, the first of a FaSTPod and a function there gets it. Both report why they get no more, and get
// more once they may.
func (s *served) obeysPolicy(t *testing.T) {
	s.write(t, ofTeam)
	fastPod := func() api.FaSTPodStatus {
		fp := &api.FaSTPod{}
		s.read(t, "team", "bert", fp)
		return fp.Status
	}
	function := func() api.GPUFunctionStatus {
		f := &api.GPUFunction{}
		s.read(t, "team", "chat", f)
		return f.Status
	}
	s.wait(t, "a pod of the FaSTPod", func() bool { return fastPod().Replicas == 1 })
	s.write(t, functionOfTeam)
	s.kubectl(t, "scale", "fastpod", "bert", "-n", "team", "--replicas=2")
	const why = "SharePolicy teams allows 1 replicas, of which 1 are held, and 1 more would be 1 too much"
	s.wait(t, "that the policy is said to be in the way", func() bool {
		ofFastPod := meta.FindStatusCondition(fastPod().Conditions, api.ConditionQuotaExceeded)
		ofFunction := meta.FindStatusCondition(function().Conditions, api.ConditionQuotaExceeded)
		return ofFastPod != nil && ofFastPod.Message == why && ofFunction != nil && strings.HasSuffix(ofFunction.Message, why)
	})
	s.wait(t, "what the policy observes", func() bool {
		return s.kubectlGet(t, "sharepolicy", "teams", "-o", "jsonpath={.status.namespaces} {.status.replicas} {.status.smPercent} {.status.memory}") == "1 1 2 64Mi"
	})
	s.kubectl(t, "delete", "sharepolicy", "teams")
	s.wait(t, "all pods without the policy", func() bool {
		return fastPod().Replicas == 2 && meta.FindStatusCondition(fastPod().Conditions, api.ConditionQuotaExceeded) == nil &&
			function().Residency.Hot == 1 && meta.FindStatusCondition(function().Conditions, api.ConditionQuotaExceeded) == nil
	})
	s.kubectl(t, "delete", "-n", "team", "gpufunction/chat", "fastpod/bert")
}

// namesOtherAutoscaler: a function reports which other autoscaler is configured to scale it.
func (s *served) namesOtherAutoscaler(t *testing.T) {
	target := s.kubectl(t, "get", "fastpods", "-l", api.LabelFunction+"=resnet50", "-o", "jsonpath={.items[0].metadata.name}")
	s.write(t, `apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: cpu}
spec:
  scaleTargetRef: {apiVersion: serving.gshare.dev/v1alpha1, kind: FaSTPod, name: `+target+`}
  maxReplicas: 3
`)
	conflict := func() string {
		if c := meta.FindStatusCondition(s.function(t).Status.Conditions, api.ConditionScalingConflict); c != nil {
			return c.Message
		}
		return ""
	}
	s.wait(t, "a conflict", func() bool {
		return strings.Contains(conflict(), "HorizontalPodAutoscaler cpu is told to scale FaSTPod "+target)
	})
	s.kubectl(t, "delete", "hpa", "cpu")
	s.wait(t, "no conflict", func() bool { return conflict() == "" })
}
