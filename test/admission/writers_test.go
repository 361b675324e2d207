package admission_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/manifests"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// TestWriters: gshare-controller alone may write the annotations by which it says what is to become of a pod, on whatever pod, and nobody a placement,
// not even an empty one. A Binding gets past none of this.
func TestWriters(t *testing.T) {
	c := connect(t, server)
	c.namespace(t, "writers", nil)
	c.apply(t, manifests.NodePolicies)
	controller := rest.CopyConfig(server)
	controller.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:gshare-system:gshare-controller", Groups: []string{"system:masters"}}
	for name, value := range map[string]string{
		api.AnnotationDrain: "2026-01-01T00:00:00Z", api.AnnotationAtOnce: "64", api.AnnotationMovesFrom: "3", kube.AnnotationTrialQuota: "20", kube.AnnotationResidency: `{"v":1,"residency":{"seq":1,"level":"Shared"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			p := plain()
			p.Annotations[name] = value
			want := fmt.Sprintf("%s is written by gshare-controller only", name)
			c.eventually(t, name, func() (bool, error) {
				_, err := c.try("writers", p)
				return err != nil && strings.Contains(err.Error(), want), err
			})
			if _, err := connect(t, controller).try("writers", p); err != nil {
				t.Errorf("gshare-controller: %v", err)
			}
		})
	}
	for name, value := range map[string]string{"a placement": "{}", "an empty placement": ""} {
		t.Run(name, func(t *testing.T) {
			p := plain()
			p.Annotations[kube.AnnotationPlacement] = value
			c.eventually(t, name, func() (bool, error) {
				_, err := c.try("writers", p)
				return err != nil && strings.Contains(err.Error(), "gshare.dev/placement is written by gshare-scheduler"), err
			})
		})
	}
	t.Run("binding", func(t *testing.T) { testBindings(t, c) })
}

// testBindings checks that a Binding, whose annotations the API server copies to the pod, has none of gshare but the scheduler's placement.
func testBindings(t *testing.T, c *cluster) {
	p, err := c.CoreV1().Pods("writers").Create(c.ctx, plain(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	bind := func(annotation string) error {
		return c.CoreV1().Pods("writers").Bind(c.ctx, &v1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: p.Name, Annotations: map[string]string{annotation: "x"}}, Target: v1.ObjectReference{Kind: "Node", Name: "n"},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	}
	for _, annotation := range []string{kube.AnnotationResidency, api.AnnotationDrain, api.AnnotationAtOnce} {
		t.Run(annotation, func(t *testing.T) {
			c.eventually(t, annotation, func() (bool, error) {
				err := bind(annotation)
				return err != nil && strings.Contains(err.Error(), "a Binding may have no annotation of gshare but gshare.dev/placement"), err
			})
		})
	}
	if err := bind("example.com/drain"); err != nil {
		t.Error(err)
	}
}
