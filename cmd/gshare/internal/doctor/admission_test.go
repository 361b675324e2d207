package doctor

import (
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	admissionbeta "k8s.io/api/admissionregistration/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// admissionKinds is what the API server serves of its admission group. Validating policies are v1 in all supported versions.
func (i *installation) admissionKinds() []*metav1.APIResourceList {
	kinds := []*metav1.APIResourceList{{GroupVersion: "admissionregistration.k8s.io/v1", APIResources: []metav1.APIResource{{Kind: validating}}}}
	if i.mutating != "" && i.mutating != "v1" {
		kinds = append(kinds, &metav1.APIResourceList{GroupVersion: "admissionregistration.k8s.io/" + i.mutating})
	}
	if last := kinds[len(kinds)-1]; i.mutating != "" {
		last.APIResources = append(last.APIResources, metav1.APIResource{Kind: mutating})
	}
	return kinds
}

func (i *installation) policies(t *testing.T) (objects []runtime.Object) {
	t.Helper()
	names, err := policyNames()
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{mutating, mutating + binding, validating, validating + binding} {
		if len(names[kind]) == 0 {
			t.Fatalf("no %s in the manifests", kind)
		}
		for _, name := range names[kind] {
			if meta := (metav1.ObjectMeta{Name: name}); name != i.without {
				objects = append(objects, map[string]runtime.Object{
					mutating + "v1":                &admissionv1.MutatingAdmissionPolicy{ObjectMeta: meta},
					mutating + binding + "v1":      &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta},
					mutating + "v1beta1":           &admissionbeta.MutatingAdmissionPolicy{ObjectMeta: meta},
					mutating + binding + "v1beta1": &admissionbeta.MutatingAdmissionPolicyBinding{ObjectMeta: meta},
					validating + "v1":              &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta},
					validating + binding + "v1":    &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta},
				}[kind+i.versionOf(kind)])
			}
		}
	}
	return slices.DeleteFunc(objects, func(o runtime.Object) bool { return o == nil })
}

// versionOf returns the version of the API in which objects of this kind are stored.
func (i *installation) versionOf(kind string) string {
	if strings.HasPrefix(kind, mutating) {
		return i.mutating
	}
	return "v1"
}

// TestGateInMetrics: the API server's metrics say whether the feature gate of mutating admission policies is on.
func TestGateInMetrics(t *testing.T) {
	const others = "# TYPE kubernetes_feature_enabled gauge\nkubernetes_feature_enabled{name=\"PodsAPI\",stage=\"ALPHA\"} 1\n"
	for name, c := range map[string]struct {
		metrics   string
		on, known bool
	}{
		"on":      {others + "kubernetes_feature_enabled{name=\"MutatingAdmissionPolicy\",stage=\"BETA\"} 1\n", true, true},
		"off":     {others + "kubernetes_feature_enabled{name=\"MutatingAdmissionPolicy\",stage=\"BETA\"} 0\n", false, true},
		"unknown": {others, false, false},
		"nothing": {"", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if on, known := gateInMetrics([]byte(c.metrics)); on != c.on || known != c.known {
				t.Errorf("on %v, known %v; want %v, %v", on, known, c.on, c.known)
			}
		})
	}
}
