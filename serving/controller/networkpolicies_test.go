package controller

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gshare-dev/gshare/test/tracker"
)

func TestNetworkPolicyOfFunction(t *testing.T) {
	f := function(t, nil)
	before := (&networkPolicies{gateways: "old"}).of(f)
	foreign := &networking.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "gshare-resnet50"}}
	for name, test := range map[string]struct {
		there *networking.NetworkPolicy
		want  string // namespace from which the pods get connections
		err   string
	}{
		"none":               {nil, "gshare-system", ""},
		"of another release": {before, "gshare-system", ""},
		"of somebody else":   {foreign, "", "is not that of the function"},
	} {
		t.Run(name, func(t *testing.T) {
			scheme, err := Scheme()
			if err != nil {
				t.Fatal(err)
			}
			b := fake.NewClientBuilder().WithScheme(scheme).WithObjectTracker(tracker.New(scheme))
			if test.there != nil {
				b = b.WithObjects(test.there.DeepCopy())
			}
			c := b.Build()
			n := &networkPolicies{client: c, live: c, gateways: "gshare-system"}
			for range 2 { // the second run changes nothing
				if err := n.ensure(t.Context(), f); (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, want %q", err, test.err)
				}
			}
			got := &networking.NetworkPolicy{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ml", Name: "gshare-resnet50"}, got); err != nil {
				t.Fatal(err)
			}
			from := ""
			for _, rule := range got.Spec.Ingress {
				for _, peer := range rule.From {
					from += peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
				}
			}
			if from != test.want {
				t.Errorf("the pods get connections from %q, want %q", from, test.want)
			}
			if test.err == "" && (!metav1.IsControlledBy(got, f) || len(got.Spec.PolicyTypes) != 1 || got.Spec.PodSelector.MatchLabels["serving.gshare.dev/function"] != "resnet50") {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestObjectsOfFunctionLater: objects that the API server refused at first are created later, even if the function does not
// change.
func TestObjectsOfFunctionLater(t *testing.T) {
	for name, kind := range map[string]client.Object{"NetworkPolicy": &networking.NetworkPolicy{}, "Service": &v1.Service{}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := function(t, nil)
				c := newCluster(t, f.DeepCopy())
				c.run(true)
				away := true
				c.calls.Create = func(ctx context.Context, w client.WithWatch, o client.Object, options ...client.CreateOption) error {
					if away && reflect.TypeOf(o) == reflect.TypeOf(kind) {
						return apierrors.NewInternalError(errors.New("a webhook does not answer"))
					}
					return w.Create(ctx, o, options...)
				}
				request := reconcile.Request{NamespacedName: client.ObjectKeyFromObject(f)}
				if result, err := c.known.Reconcile(t.Context(), request); err != nil || result.RequeueAfter == 0 {
					t.Errorf("not tried again: %+v, %v", result, err)
				}
				away = false
				if result, err := c.known.Reconcile(t.Context(), request); err != nil || result.RequeueAfter != 0 {
					t.Errorf("tried again although it is there: %+v, %v", result, err)
				}
			})
		})
	}
}
