// Package kserve_test runs KServe's own reconcilers on the InferenceService of docs/autoscalers.md. It is a separate module, so that gshare does
// not depend on what KServe depends on. Its first build takes minutes.
package kserve_test

import (
	"context"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/kserve/kserve/pkg/apis/serving/v1beta1"
	"github.com/kserve/kserve/pkg/constants"
	"github.com/kserve/kserve/pkg/controller/v1beta1/inferenceservice/reconcilers/autoscaler"
	"github.com/kserve/kserve/pkg/controller/v1beta1/inferenceservice/reconcilers/deployment"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/yaml"
)

// example returns the documented InferenceService.
func example(t *testing.T) *v1beta1.InferenceService {
	t.Helper()
	text, err := os.ReadFile("../../docs/autoscalers.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(block, "kind: InferenceService") {
			continue
		}
		service := &v1beta1.InferenceService{}
		if err := yaml.UnmarshalStrict([]byte(block), service); err != nil {
			t.Fatal(err)
		}
		return service
	}
	t.Fatal("the document has no InferenceService")
	return nil
}

// reconcile does what KServe's controller does for a predictor in Standard mode, with the autoscaler class in the annotations.
func reconcile(t *testing.T, c client.Client, scheme *runtime.Scheme, s *v1beta1.InferenceService) {
	t.Helper()
	meta := metav1.ObjectMeta{
		Namespace: "ml", Name: s.Name + "-predictor", Labels: maps.Clone(s.Spec.Predictor.Labels), Annotations: maps.Clone(s.Annotations),
	}
	pod := &corev1.PodSpec{Containers: s.DeepCopy().Spec.Predictor.PodSpec.Containers}
	extension := &s.Spec.Predictor.ComponentExtensionSpec
	d, err := deployment.NewDeploymentReconciler(c, scheme, *meta.DeepCopy(), metav1.ObjectMeta{}, extension, pod, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, err := autoscaler.NewAutoscalerReconciler(c, scheme, meta, extension, &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestExternal: with the autoscaler class external, KServe creates no HorizontalPodAutoscaler and keeps a number of replicas that somebody else
// has set, whatever else changes. With the class hpa it creates one.
func TestExternal(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := clientscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for class, scalers := range map[constants.AutoscalerClassType]int{constants.AutoscalerClassExternal: 0, constants.AutoscalerClassHPA: 1} {
		t.Run(string(class), func(t *testing.T) {
			c := fake.NewClientBuilder().WithScheme(scheme).Build()
			s := example(t)
			if got := s.Annotations[constants.AutoscalerClass]; got != string(constants.AutoscalerClassExternal) {
				t.Fatalf("the document's class is %q", got)
			}
			s.Annotations[constants.AutoscalerClass] = string(class)
			reconcile(t, c, scheme, s)
			d := &appsv1.Deployment{}
			get := func() {
				t.Helper()
				if err := c.Get(context.Background(), client.ObjectKey{Namespace: "ml", Name: "resnet50-predictor"}, d); err != nil {
					t.Fatal(err)
				}
			}
			get()
			if d.Spec.Template.Labels["serving.gshare.dev/function"] != "resnet50" {
				t.Errorf("labels of the pods %v", d.Spec.Template.Labels)
			}
			limits := d.Spec.Template.Spec.Containers[0].Resources.Limits
			if sm := limits["gshare/sm"]; sm.Value() != 24 {
				t.Errorf("limits %v", limits)
			}
			for _, replicas := range []int32{3, 0} {
				d.Spec.Replicas = &replicas
				if err := c.Update(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				s.Spec.Predictor.PodSpec.Containers[0].Image += "0"
				reconcile(t, c, scheme, s)
				get()
				if d.Spec.Replicas == nil || *d.Spec.Replicas != replicas || d.Spec.Template.Spec.Containers[0].Image != s.Spec.Predictor.PodSpec.Containers[0].Image {
					t.Errorf("%v replicas of %s, want %d of %s", d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Image, replicas, s.Spec.Predictor.PodSpec.Containers[0].Image)
				}
			}
			list := &autoscalingv2.HorizontalPodAutoscalerList{}
			if err := c.List(t.Context(), list); err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != scalers {
				t.Errorf("%d HorizontalPodAutoscalers, want %d", len(list.Items), scalers)
			}
		})
	}
}
