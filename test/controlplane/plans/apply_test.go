package plans_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// TestApply: with the permissions of the manifests, a plan in mode Apply makes front serve back's requests, and back then has no pods. Back serves itself
// again after the plan's mode changes to Recommend, or the plan is deleted, although no controller ran at that time.
func TestApply(t *testing.T) {
	admin := install(t)
	stop := startController(t)
	create(t, admin, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "applied", Labels: map[string]string{api.LabelPlanData: ""}},
		Data: map[string]string{"profiles": data, "prices": prices}})
	for name, slo := range map[string]api.Duration{"front": "250ms", "back": "1s"} {
		create(t, admin, &api.GPUFunction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: api.GPUFunctionSpec{
			SLO: api.SLO{Latency: slo}, Protocol: api.OIP, Batching: api.Batching{MaxBatch: 4}, Scaling: api.Scaling{MinReplicas: 1, RequestsPerSecond: 15, Window: "2s", KeepShared: "1s"},
			Template:  v1.PodTemplateSpec{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "server", Image: "example.com/vision"}}}},
			Resources: api.Resources{Share: &api.Share{SM: new(int64(12)), Quota: new(int64(30)), Memory: "1620Mi"}},
		}})
	}
	plan := func(mode api.PlanMode) *api.InferencePlan {
		return &api.InferencePlan{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "applied"}, Spec: api.InferencePlanSpec{
			Model: "vision", Functions: []api.PlannedFunction{{Name: "front", RequestsPerSecond: 2}, {Name: "back", RequestsPerSecond: 12}}, Mode: mode,
			Profiles: api.DataReference{ConfigMap: "applied", Key: "profiles"}, Prices: api.DataReference{ConfigMap: "applied", Key: "prices"},
		}}
	}
	create(t, admin, plan(api.Apply))
	served := func(host string, pods int) {
		t.Helper()
		awaitServed(t, admin, "back", host, pods)
	}
	served("front", 0)
	got := awaitCondition(t.Context(), t, admin, "applied", api.ConditionApplied, "True Applied 1 of 2 functions are served by others, which saves 50%")
	if g := got.Status.Groups; len(g) != 1 || g[0].Host != "front" || printed(t, "applied")["Applied"] != "Applied" {
		t.Errorf("groups %+v, printed %v", g, printed(t, "applied"))
	}
	set := func(mode api.PlanMode) {
		t.Helper()
		if err := admin.Patch(t.Context(), plan(mode), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"mode":"`+mode+`"}}`))); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	set(api.Recommend)
	stop = startController(t)
	served("", 1)
	set(api.Apply)
	served("front", 0)
	stop()
	if err := admin.Delete(t.Context(), plan(api.Apply)); err != nil {
		t.Fatal(err)
	}
	startController(t)
	served("", 1)
	until(t.Context(), t, "events", func(ctx context.Context) error { // events come later
		list, reasons := &events.EventList{}, []string(nil)
		if err := admin.List(ctx, list, client.InNamespace("default")); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Name == "back" && strings.HasPrefix(e.Reason, "Served") {
				reasons = append(reasons, e.Reason)
			}
		}
		if !slices.Contains(reasons, api.EventServedBy) || !slices.Contains(reasons, api.EventServedByOwn) {
			return fmt.Errorf("%v", reasons)
		}
		return nil
	})
}

// awaitServed waits until a function is served by the given host and has the given number of pods. It plays a kubelet that runs all pods.
func awaitServed(t *testing.T, c client.Client, name, host string, pods int) {
	t.Helper()
	f, list := &api.GPUFunction{}, &v1.PodList{}
	until(t.Context(), t, name, func(ctx context.Context) error {
		if err := c.List(ctx, list, client.InNamespace("default"), client.HasLabels{api.LabelFunction}); err != nil {
			return err
		}
		own := 0
		for i := range list.Items {
			p := &list.Items[i]
			if p.Labels[api.LabelFunction] == name {
				own++
			}
			if p.Status.PodIP != "" {
				continue
			}
			p.Status = v1.PodStatus{Phase: v1.PodRunning, PodIP: "10.0.0.1", PodIPs: []v1.PodIP{{IP: "10.0.0.1"}}, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}}}
			if err := c.Status().Update(ctx, p); err != nil {
				return err // the controller may have changed or deleted the object since it was listed
			}
		}
		if err := c.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, f); err != nil {
			return err
		}
		if own != pods || f.Status.ServedBy != host || f.Status.Host != host {
			return fmt.Errorf("%d pods, to be served by %q and is by %q, want %d pods and %q", own, f.Status.ServedBy, f.Status.Host, pods, host)
		}
		return nil
	})
}
