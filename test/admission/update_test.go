package admission_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// testUpdate: an update that makes an annotation of the share invalid is refused. Updates of anything else are not checked.
func (c *cluster) testUpdate(t *testing.T) {
	pods := c.CoreV1().Pods("default")
	p, err := pods.Create(c.ctx, pod(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for word, wantErr := range map[string]string{
		`"gshare.dev/isolation": "swop"`: "gshare.dev/isolation: write",
		`"gshare.dev/sm-limit": "23"`:    "gshare.dev/sm-limit: it is below",
		`"gshare.dev/mem": "16Gi"`:       "gshare.dev/mem: no container",
		`"gshare.dev/mem": "8Gi"`:        "",
		`"gshare.dev/slice.main": "x"`:   "gshare.dev/slice.CONTAINER: write gpu",
		`"gshare.dev/slice.main": "mig"`: "",
		`"gshare.dev/weights": "x"`:      "gshare.dev/weights: write",
		`"gshare.dev/class": "slo"`:      "gshare.dev/class: slo needs the label",
		`"gshare.dev/packing": "x"`:      "gshare.dev/packing: write",
		`"gshare.dev/workload": "bert"`:  "",
		`"example.com/note": "x"`:        "",
	} {
		t.Run(word, func(t *testing.T) {
			_, err := pods.Patch(c.ctx, p.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"annotations": {%s}}}`, word), metav1.PatchOptions{})
			if (err == nil) != (wantErr == "") || err != nil && !strings.Contains(err.Error(), wantErr) {
				t.Errorf("%v, want %q", err, wantErr)
			}
		})
	}
}

// testDebug: an ephemeral container is subject to the same restrictions as the pod's other containers.
func (c *cluster) testDebug(t *testing.T) {
	pods := c.CoreV1().Pods("default")
	p, err := pods.Create(c.ctx, pod(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, root := range map[string]bool{"tools": false, "root": true} {
		t.Run(name, func(t *testing.T) {
			now, err := pods.Get(c.ctx, p.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			joins := v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name, Image: "image"}}
			joins.SecurityContext = &v1.SecurityContext{Privileged: &root}
			now.Spec.EphemeralContainers = append(now.Spec.EphemeralContainers, joins)
			_, err = pods.UpdateEphemeralContainers(c.ctx, p.Name, now, metav1.UpdateOptions{})
			if refused := err != nil && strings.Contains(err.Error(), "securityContext.privileged: a pod"); refused != root || err != nil && !refused {
				t.Errorf("%v", err)
			}
		})
	}
}
