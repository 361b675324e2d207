package controller

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/test/tracker"
)

func TestServiceOfFunction(t *testing.T) {
	const gateway, before = "gshare-gateway.gshare-system.svc.example", "old.example"
	f := function(t, nil)
	own := (&services{gateway: before}).of(f)
	foreign := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "resnet50"}, Spec: v1.ServiceSpec{ExternalName: before}}
	ofNamesake := own.DeepCopy() // of a function that was deleted and created again
	ofNamesake.OwnerReferences[0].UID = "uid-0"
	for name, test := range map[string]struct {
		there *v1.Service
		want  string // the host that it points to
		err   string
	}{
		"none":               {nil, gateway, ""},
		"of another release": {own, gateway, ""},
		"of somebody else":   {foreign, before, "is not that of the function"},
		"of a namesake":      {ofNamesake, before, "is not that of the function"},
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
			s := &services{client: c, live: c, gateway: gateway}
			for range 2 { // the second run changes nothing
				if err := s.ensure(t.Context(), f); (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, want %q", err, test.err)
				}
			}
			got := &v1.Service{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: "ml", Name: "resnet50"}, got); err != nil || got.Spec.ExternalName != test.want {
				t.Errorf("leads to %s, want %s (%v)", got.Spec.ExternalName, test.want, err)
			}
			if test.err == "" && (got.Labels[api.LabelFunction] != "resnet50" || !metav1.IsControlledBy(got, f)) {
				t.Errorf("labels %v, owners %v", got.Labels, got.OwnerReferences)
			}
		})
	}
}
