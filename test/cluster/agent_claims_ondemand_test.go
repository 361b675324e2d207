package cluster_test

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/draplugin"
	"github.com/gshare-dev/gshare/test/cluster"
)

const oneInMIGMode = `devices:
- {uuid: GPU-0, model: A100, sms: 108, memoryMiB: 81920}
- {uuid: GPU-1, model: A100, sms: 108, memoryMiB: 81920, mig: []}
`

// TestAgentClaimsOnDemand: under the stock scheduler, claims for MIG profiles get exactly their instances, which the agent creates as pods come. A
// claim waits if its instance cannot be created beside the existing ones. An agent that is killed and restarted creates no instance twice.
func TestAgentClaimsOnDemand(t *testing.T) {
	kubelet := map[string]any{"syncFrequency": "2s"}
	a := startWithAgents(t, cluster.Options{Nodes: 1, SchedulerConfig: []byte(stock), KubeletConfig: kubelet}, oneInMIGMode)
	ctx, node := testContext(t), a.Nodes[0]
	agent := a.of[node.Name]
	agent.withoutDriver(ctx, t)
	agent.configure(ctx, t, "  onDemand: [GPU-1]\n  resourceClaims: [GPU-1]\n")
	a.waitPlacements(ctx, t)
	a.deviceClass(ctx, t)
	for _, profile := range []string{"1g.10gb", "3g.40gb", "4g.40gb"} {
		a.profileTemplate(ctx, t, profile, profile, "")
	}
	a.profileTemplate(ctx, t, "part", "2g.20gb", "50")

	a.create(ctx, t, withClaim("small", "1g.10gb"))
	small := a.hasInstance(ctx, t, "small", "MIG-1-1g.10gb-6", "")
	a.create(ctx, t, withClaim("large", "3g.40gb"))
	large := a.hasInstance(ctx, t, "large", "MIG-1-3g.40gb-0", "")
	a.create(ctx, t, withClaim("one", "part"), withClaim("two", "part"))
	parts := []*v1.Pod{a.hasInstance(ctx, t, "one", "MIG-1-2g.20gb-4", "50"), a.hasInstance(ctx, t, "two", "MIG-1-2g.20gb-4", "50")}
	a.create(ctx, t, withClaim("other", "4g.40gb"))
	a.waitUnschedulable(ctx, t, "other")
	a.waitBooks(ctx, t, node)

	agent.Kill()
	agent.start(ctx, t)
	a.waitGrants(ctx, t, node, 4)
	for _, pod := range append(parts, small, large) {
		a.goesOn(ctx, t, pod)
	}

	a.leave(ctx, t, []*v1.Pod{large})
	other := a.hasInstance(ctx, t, "other", "MIG-1-4g.40gb-0", "") // in place of the previous one
	a.goesOn(ctx, t, small)
	a.waitBooks(ctx, t, node)
	a.endClaims(ctx, t, node, append(parts, small, other)...)

	for _, point := range []string{"recorded", "served", "granted", "ungranted", "unserved"} {
		agent.Kill()
		agent.startFaulty(ctx, t, point+":1")
		pod := withClaim("killed-"+point, "1g.10gb")
		a.create(ctx, t, pod)
		check := func() *v1.Pod { return a.hasInstance(ctx, t, pod.Name, "MIG-1-1g.10gb-6", "") }
		given := point == "ungranted" || point == "unserved"
		if given {
			a.leave(ctx, t, []*v1.Pod{check()})
		}
		select {
		case <-agent.Done():
		case <-ctx.Done():
			t.Fatal("the agent has not come to the point ", point)
		}
		agent.start(ctx, t)
		if !given {
			a.leave(ctx, t, []*v1.Pod{check()})
		}
		a.endClaims(ctx, t, node)
	}
}

// waitPlacements waits until all 18 instances that an A100 can have are offered to claims, each with what it consumes of the GPU.
func (a *agents) waitPlacements(ctx context.Context, t *testing.T) {
	t.Helper()
	poll(ctx, t, func() string {
		pools, err := a.Client().ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		devices, counters := 0, 0
		for _, s := range pools.Items {
			for _, set := range s.Spec.SharedCounters {
				counters += len(set.Counters)
			}
			for _, d := range s.Spec.Devices {
				if len(d.Taints) == 0 && len(d.ConsumesCounters) == 1 {
					devices++
				}
			}
		}
		if devices != 18 || counters != 8 {
			return fmt.Sprintf("%d devices and %d counters are offered, want 18 and 8", devices, counters)
		}
		return ""
	})
}

// profileTemplate creates a ResourceClaimTemplate for a MIG instance of a profile; or, if sm is set, for that part of its SMs and 1Gi.
func (a *agents) profileTemplate(ctx context.Context, t *testing.T, name, profile, sm string) {
	t.Helper()
	request := &resourceapi.ExactDeviceRequest{
		DeviceClassName: draplugin.Driver,
		Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf(
			`has(device.attributes["gshare.dev"].profile) && device.attributes["gshare.dev"].profile == %q`, profile)}}},
	}
	if sm != "" {
		request.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{
			draplugin.CapacitySM: resource.MustParse(sm), draplugin.CapacityMemory: resource.MustParse("1Gi"),
		}}
	}
	_, err := a.Client().ResourceV1().ResourceClaimTemplates("default").Create(ctx, &resourceapi.ResourceClaimTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
			Requests: []resourceapi.DeviceRequest{{Name: "gpu", Exactly: request}},
		}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// hasInstance waits until a pod runs. It checks inside the pod that the pod has a MIG instance and which percentage of the instance's SMs MPS gives
// it; MPS sets none if the pod has the instance to itself.
func (a *agents) hasInstance(ctx context.Context, t *testing.T, name, instance, percent string) *v1.Pod {
	t.Helper()
	pod, err := a.WaitPod(ctx, name, cluster.IsRunning)
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.Nodes[0].Exec(ctx, pod, "main", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES,$CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
	if want := instance + "," + percent + "\n"; err != nil || string(out) != want {
		t.Errorf("%s: inside is %q (%v), want %q", name, out, err, want)
	}
	return pod
}
