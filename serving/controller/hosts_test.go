package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// TestServedBy: a function has no pods while its status says that another function serves it, even if it has a minimum. It has pods again once the status
// no longer says so.
func TestServedBy(t *testing.T) {
	for name, test := range map[string]struct {
		change func(guest *api.GPUFunction)
		pods   int // pods of the guest while its status names the host
	}{
		"same template": {func(*api.GPUFunction) {}, 0},
		"another image": {func(f *api.GPUFunction) { f.Spec.Template.Spec.Containers[0].Image = "example.com/other" }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				host := function(t, func(f *api.GPUFunction) { f.Spec.Scaling.MinReplicas = 1 })
				guest := host.DeepCopy()
				guest.Name, guest.UID = "guest", "guest"
				test.change(guest)
				guest.Status.ServedBy = host.Name
				c := newCluster(t, host, guest, gpuNode(t, "node1"))
				look := func(objects ...*api.GPUFunction) {
					t.Helper()
					for _, o := range objects {
						if _, err := c.known.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(5 * time.Second)
					synctest.Wait()
				}
				count := func() (n int) {
					for _, p := range c.all() {
						if p.Labels[api.LabelFunction] == guest.Name {
							n++
						}
					}
					return n
				}
				look(guest, host)
				c.run(true)
				look()
				if n, all := count(), len(c.all()); n != test.pods || all != 1+test.pods {
					t.Errorf("%d pods of the guest and %d in all, want %d and %d", n, all, test.pods, 1+test.pods)
				}
				now := &api.GPUFunction{}
				if err := c.client.Get(t.Context(), client.ObjectKeyFromObject(guest), now); err != nil {
					t.Fatal(err)
				}
				now.Status.ServedBy = ""
				if err := c.client.Status().Update(t.Context(), now); err != nil {
					t.Fatal(err)
				}
				look(guest)
				if n := count(); n != 1 {
					t.Errorf("%d pods of the guest by itself, want 1", n)
				}
			})
		})
	}
}

// TestHostChanged: of all changes of a status, only a change of the host triggers a reconciliation.
func TestHostChanged(t *testing.T) {
	none, one, other := &api.GPUFunction{}, &api.GPUFunction{}, &api.GPUFunction{}
	one.Status.ServedBy, other.Status.ServedBy = "one", "other"
	busy := one.DeepCopy()
	busy.Status.Replicas = 3
	for _, test := range []struct {
		before, now *api.GPUFunction
		want        bool
	}{{none, one, true}, {one, other, true}, {one, none, true}, {one, busy, false}, {none, none.DeepCopy(), false}} {
		if got := hostChanged.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.now}); got != test.want {
			t.Errorf("%+v, then %+v: %t", test.before.Status, test.now.Status, got)
		}
	}
}
