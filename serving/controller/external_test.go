package controller

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/report"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// TestExternal hands a function over to another autoscaler and takes it back. At any time, exactly one of the two decides about its pods.
func TestExternal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := function(t, func(f *api.GPUFunction) { f.Spec.Scaling.MinReplicas = 1 })
		name, key := gateway.FunctionName{Namespace: f.Namespace, Name: f.Name}, client.ObjectKeyFromObject(f)
		c := newCluster(t, f.DeepCopy())
		c.run(true)
		load := gateway.Load{}
		received := func(requests int, waits bool) {
			load.Arrived, load.Received, load.Answered = load.Arrived+uint64(requests), load.Received+uint64(requests), load.Answered+uint64(requests)
			c.known.gateways.receive("g", report.Report{Gateway: "g", Incarnation: "1", Functions: []report.Function{{FunctionName: name, Load: load, WaitsForReplica: waits}}})
		}
		reconciled := func(change func(*api.GPUFunction)) {
			t.Helper()
			object := &api.GPUFunction{}
			if err := c.client.Get(t.Context(), key, object); err != nil {
				t.Fatal(err)
			}
			change(object)
			if err := c.client.Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			if _, err := c.known.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
			synctest.Wait()
			for id := range scaling.ID(4) { // as a watch would report them
				c.pods.look(fleet.InstanceName(name, id))
			}
			synctest.Wait()
		}
		check := func(when string, pods int, known bool) {
			t.Helper()
			if _, is, _ := c.known.advisor.Wanted(name); is != known || c.known.fleet.Has(name) == known {
				t.Errorf("%s: the advisor has the function: %v, the fleet: %v", when, is, c.known.fleet.Has(name))
			}
			if got := len(c.all()); got != pods {
				t.Errorf("%s: %d pods, want %d", when, got, pods)
			}
		}
		received(1_000_000, false)
		reconciled(func(*api.GPUFunction) {})
		check("scaled by gshare", 1, false)

		reconciled(func(f *api.GPUFunction) {
			f.Spec.Template, f.Spec.Resources, f.Spec.Scaling.Autoscaler, f.Spec.Scaling.MinReplicas = v1.PodTemplateSpec{}, api.Resources{}, api.External, 0
		})
		for _, p := range c.all() { // no kubelet ends it
			if p.DeletionTimestamp == nil {
				t.Error("the pod of gshare's is not deleted")
			}
		}
		check("scaled by another", 0, true)
		received(0, false)
		time.Sleep(2 * time.Second)
		if n, _, _ := c.known.advisor.Wanted(name); n != 0 {
			t.Errorf("%d replicas for requests of long ago", n)
		}
		received(1, true)
		if n, _, _ := c.known.advisor.Wanted(name); n != 1 {
			t.Errorf("%d replicas at the first request", n)
		}
		status := statusOf(api.GPUFunctionStatus{}, known{}, &c.known.advisor.Status()[0], backOff{}, "")
		if status.Share != "" || status.Pods != "0+0+0" || status.Conditions[0].Reason != "WaitsForAutoscaler" {
			t.Errorf("status %+v", status)
		}
		check("scaled by another, with load", 0, true)

		reconciled(func(f *api.GPUFunction) {
			whole := function(t, nil)
			f.Spec.Template, f.Spec.Resources, f.Spec.Scaling.Autoscaler, f.Spec.Scaling.MinReplicas = whole.Spec.Template, whole.Spec.Resources, api.Native, 2
		})
		check("scaled by gshare again", 2, false)

		reconciled(func(f *api.GPUFunction) {
			f.Spec.Template, f.Spec.Resources, f.Spec.Scaling.Autoscaler, f.Spec.Scaling.MinReplicas = v1.PodTemplateSpec{}, api.Resources{}, api.External, 0
		})
		if err := c.client.Delete(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		if _, err := c.known.Reconcile(t.Context(), reconcile.Request{NamespacedName: key}); err != nil {
			t.Fatal(err)
		}
		if _, is, _ := c.known.advisor.Wanted(name); is {
			t.Error("a function is known whose object is gone")
		}
		if got := c.known.gateways.Load(name); got.Received != 0 {
			t.Errorf("load %+v of a function whose object is gone", got)
		}
	})
}

// TestExternalLeft: if a function was handed over to another autoscaler before a controller took over, the controller ends the pods that gshare's
// autoscaler had, and no others.
func TestExternalLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		native := function(t, nil)
		fp := fastPodOf(native)
		fp.UID = "uid-2"
		ours, theirs := functionPod(fp, "ours", 3), functionPod(fp, "theirs", 1)
		ours.UID, theirs.UID = "uid-3", "uid-4"
		theirs.OwnerReferences[0].Kind, theirs.OwnerReferences[0].Name = "ReplicaSet", "theirs"
		f := native.DeepCopy()
		f.Spec.Template, f.Spec.Resources, f.Spec.Scaling.Autoscaler = v1.PodTemplateSpec{}, api.Resources{}, api.External
		c := newCluster(t, f, fp, ours, theirs)
		c.run(true)
		for range 2 {
			if _, err := c.known.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f)}); err != nil {
				t.Fatal(err)
			}
		}
		if all := c.all(); len(all) != 1 || all[0].Name != "theirs" {
			t.Errorf("%d pods are left, want that of the other autoscaler only", len(all))
		}
	})
}
