package admission_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/gshare-dev/gshare/manifests"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// TestWriters: gshare-controller alone may write the annotations by which it says what is to become of a pod, on whatever pod, and nobody a placement,
// not even an empty one.
func TestWriters(t *testing.T) {
	c := connect(t, server)
	c.namespace(t, "writers", nil)
	c.apply(t, manifests.NodePolicies)
	controller := rest.CopyConfig(server)
	controller.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:gshare-system:gshare-controller", Groups: []string{"system:masters"}}
	for name, value := range map[string]string{
		api.AnnotationDrain: "2026-01-01T00:00:00Z", kube.AnnotationTrialQuota: "20", kube.AnnotationResidency: `{"v":1,"residency":{"seq":1,"level":"Shared"}}`,
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
}
