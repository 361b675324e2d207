package controller

import (
	"errors"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// TestAdmit: a function that is not admitted is not run, and its condition says why.
func TestAdmit(t *testing.T) {
	for name, refused := range map[string]error{"admitted": nil, "refused": errors.New("spec.scaling.keepWarm: off")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := function(t, nil)
				c := newCluster(t, f)
				c.known.admit = func(complete *api.GPUFunction) error {
					if complete.Name != f.Name {
						t.Errorf("asked about %s", complete.Name)
					}
					return refused
				}
				c.run(true)
				synctest.Wait()
				if _, err := c.known.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f)}); err != nil {
					t.Fatal(err)
				}
				of := gateway.FunctionName{Namespace: f.Namespace, Name: f.Name}
				status := statusOf(f.Status, c.known.all()[of], nil, backOff{}, "")
				if c.known.fleet.Has(of) != (refused == nil) {
					t.Errorf("in the fleet: %t", c.known.fleet.Has(of))
				}
				if refused != nil && (len(status.Conditions) != 1 || status.Conditions[0].Reason != reasonInvalid || status.Conditions[0].Message != refused.Error()) {
					t.Errorf("%+v", status.Conditions)
				}
			})
		})
	}
}
