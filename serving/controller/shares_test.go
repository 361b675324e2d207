package controller

import (
	"maps"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// mixedFunction returns a function whose profile recommends 20 % of the SMs, and has also measured 10 %.
func mixedFunction(t *testing.T) *api.GPUFunction {
	f := function(t, nil)
	f.Spec.Resources.Share, f.Spec.Scaling = nil, api.Scaling{MaxReplicas: new(4), Shares: api.MixedShares}
	f.Spec.ProfileRef = &api.ProfileReference{Name: "measured"}
	f.Status.Profiled = &api.ProfileRecommendation{SM: 20, Quota: 100, Memory: "1152Mi", MaxBatch: 1, RequestsPerSecond: 30,
		Smaller: []api.MeasuredShare{{SM: 10, Quota: 100, RequestsPerSecond: 12}}}
	return f
}

// TestMixedShares: the pods of each share have their own FaSTPod, and another leader continues with both.
func TestMixedShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := mixedFunction(t)
		profile := &api.GPUProfile{}
		profile.Namespace, profile.Name = f.Namespace, f.Spec.ProfileRef.Name
		profile.Status.Recommended = f.Status.Profiled
		c := newCluster(t, f, profile)
		complete, err := f.CompleteForCluster(0)
		if err != nil {
			t.Fatal(err)
		}
		c.run(false)
		for at, v := range complete.Variants() {
			c.pods.Create(instanceOfFunction(v, scaling.ID(at+1)))
			if e := c.event(); e.Kind != fleet.Starting {
				t.Fatalf("%+v", e)
			}
		}
		sms, owners := map[int64]int{}, map[string]int{}
		for _, p := range c.all() {
			sm := p.Spec.Containers[0].Resources.Limits[kube.ResourceSM]
			sms[sm.Value()]++
			owners[p.Labels[api.LabelFaSTPod]]++
		}
		if !maps.Equal(sms, map[int64]int{20: 1, 10: 1}) || len(owners) != 2 {
			t.Fatalf("SMs %v, FaSTPods %v", sms, owners)
		}

		next := newCluster(t) // another leader
		next.client, next.pods.client, next.pods.live, next.known.client = c.client, c.client, c.client, c.client
		next.known.services.client, next.known.services.live, next.known.networks.client, next.known.networks.live = c.client, c.client, c.client, c.client
		next.run(true)
		if _, err := next.known.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f)}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s, ok := next.known.fleet.StatusOf(gateway.FunctionName{Namespace: f.Namespace, Name: f.Name}); !ok || s.Replicas["starting"] != 2 {
			t.Errorf("%+v", s)
		}
		if n := len(c.all()); n != 2 {
			t.Errorf("%d pods, want the 2 that were there", n)
		}
	})
}
