package controller

import (
	"fmt"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// TestFastPodsOfOneSecond: of the FaSTPods that a function has used, all but the latest are deleted, even if they were created within
// the same second.
func TestFastPodsOfOneSecond(t *testing.T) {
	for _, order := range [][]string{{"resnet50:1", "resnet50:2", "resnet50:3"}, {"resnet50:3", "resnet50:2", "resnet50:1"}, {"resnet50:1", "resnet50:2", "resnet50:1"}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				defer c.pods.queue.ShutDown()
				second := metav1.Now()
				last := ""
				for _, image := range order {
					f := function(t, func(f *api.GPUFunction) { f.Spec.Template.Spec.Containers[0].Image = image })
					fp, err := c.pods.ensureFastPod(t.Context(), f)
					if err != nil {
						t.Fatal(err)
					}
					fp.CreationTimestamp = second
					if err := c.client.Update(t.Context(), fp); err != nil {
						t.Fatal(err)
					}
					last = fp.Name
				}
				r := &fastPods{client: slimmed(c.client), live: c.client, recorder: c.recorder}
				list := &api.FaSTPodList{}
				for range 2 {
					if err := c.client.List(t.Context(), list); err != nil {
						t.Fatal(err)
					}
					for at := range list.Items {
						if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[at])}); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := c.client.List(t.Context(), list); err != nil {
					t.Fatal(err)
				}
				if len(list.Items) != 1 || list.Items[0].Name != last {
					t.Errorf("%d FaSTPods are left, want %s alone", len(list.Items), last)
				}
			})
		})
	}
}

// TestCompareRevisions: no two FaSTPods compare as equal, whatever somebody has written into the annotation.
func TestCompareRevisions(t *testing.T) {
	var all []*api.FaSTPod
	for _, revision := range []string{"", "0", "x", "-1", "99999999999999999999", "1", "2", "10"} {
		for created := range int64(2) {
			fp := fastPod(1, 24)
			fp.Name = fmt.Sprintf("f-%d", len(all))
			fp.Annotations = map[string]string{api.AnnotationRevision: revision}
			fp.CreationTimestamp = metav1.Unix(created, 0)
			all = append(all, fp)
		}
	}
	for i, a := range all {
		for j, b := range all {
			if got := compareRevisions(a, b); (got == 0) != (i == j) || got != -compareRevisions(b, a) {
				t.Errorf("%v against %v: %d", a.Annotations, b.Annotations, got)
			}
		}
	}
	if compareRevisions(all[len(all)-1], all[len(all)-3]) <= 0 {
		t.Error("10 is not after 2")
	}
}
