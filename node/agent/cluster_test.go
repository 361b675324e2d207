package agent

import (
	"context"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	kubetest "k8s.io/client-go/testing"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

func apiServer(t *testing.T) (*APIServer, *fake.Clientset, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	client := fake.NewClientset(
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}},
		&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}})
	return NewAPIServer(ctx, client, "n"), client, ctx
}

// TestPublish: the node is patched only once, and again if somebody else has changed it.
func TestPublish(t *testing.T) {
	t.Parallel()
	s, client, ctx := apiServer(t)
	has := v1.ResourceList{kube.ResourceMemory: resource.MustParse("100")}
	patches := func() (n int) {
		for _, a := range client.Actions() {
			if a.GetVerb() == "patch" {
				n++
			}
		}
		return n
	}
	publish := func(inventory string, want int) {
		t.Helper()
		if err := s.Publish(ctx, inventory, has, v1.ResourceList{}); err != nil {
			t.Fatal(err)
		}
		if got := patches(); got != want {
			t.Errorf("%d patches in all, want %d", got, want)
		}
	}
	publish("one", 2)
	publish("one", 2)
	publish("two", 3)
	node, err := client.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{})
	if err != nil || node.Annotations[kube.AnnotationInventory] != "two" {
		t.Fatalf("%+v, %v", node.Annotations, err)
	}
	node.Status.Capacity[kube.ResourceMemory] = resource.MustParse("0")
	if _, err := client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	publish("two", 4)
}

// TestWatchNode: changes of the node by others are noticed.
func TestWatchNode(t *testing.T) {
	t.Parallel()
	s, client, ctx := apiServer(t)
	changed := make(chan struct{}, 10)
	s.WatchNode(ctx, func() { changed <- struct{}{} })
	<-changed // it is there
	if _, err := client.CoreV1().Nodes().Patch(ctx, "n", types.MergePatchType, kube.AnnotationPatch("a", "b"), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-changed:
	case <-ctx.Done():
		t.Error("a change was not noticed")
	}
}

// TestPodGone: writing the enforcement status of a deleted pod is not an error.
func TestPodGone(t *testing.T) {
	t.Parallel()
	s, client, ctx := apiServer(t)
	if err := s.WriteEnforcement(ctx, types.NamespacedName{Namespace: "ns", Name: "p"}, "u", "report"); err != nil {
		t.Error(err)
	}
	pod, err := client.CoreV1().Pods("ns").Get(ctx, "p", metav1.GetOptions{})
	if err != nil || pod.Annotations[kube.AnnotationEnforcementStatus] != "report" {
		t.Errorf("%+v, %v", pod.Annotations, err)
	}
	if err := s.WriteEnforcement(ctx, types.NamespacedName{Namespace: "ns", Name: "q"}, "v", "report"); err != nil {
		t.Error(err)
	}
}

// TestFullAnnotations: a pod whose owner leaves no room for the enforcement status is not tried again and again, as one is after other errors.
func TestFullAnnotations(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer error
		again  bool
	}{
		"full": {apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil), false},
		"busy": {apierrors.NewTooManyRequests("later", 1), true},
	} {
		t.Run(name, func(t *testing.T) {
			s, client, ctx := apiServer(t)
			client.PrependReactor("patch", "pods", func(kubetest.Action) (bool, runtime.Object, error) { return true, nil, test.answer })
			if err := s.WriteEnforcement(ctx, types.NamespacedName{Namespace: "ns", Name: "p"}, "u", "report"); (err != nil) != test.again {
				t.Errorf("error %v, want one: %t", err, test.again)
			}
		})
	}
}

// TestWriteResidency: the level that is reached is written only on the pod as it was seen, and without the resourceVersion, which is older in
// the kubelet.
func TestWriteResidency(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		seen, now map[string]string // annotations; nil: the pod was deleted
		uid       types.UID
		fails     bool
	}{
		"first":           {map[string]string{kube.AnnotationResidency: "w"}, map[string]string{kube.AnnotationResidency: "w", "a": "b"}, "u", false},
		"next":            {map[string]string{kube.AnnotationResidency: "w", kube.AnnotationResidencyReached: "r"}, map[string]string{kube.AnnotationResidency: "w", kube.AnnotationResidencyReached: "r"}, "u", false},
		"wanted changed":  {map[string]string{kube.AnnotationResidency: "w"}, map[string]string{kube.AnnotationResidency: "x"}, "u", true},
		"reached exists":  {map[string]string{kube.AnnotationResidency: "w"}, map[string]string{kube.AnnotationResidency: "w", kube.AnnotationResidencyReached: "r"}, "u", true},
		"reached removed": {map[string]string{kube.AnnotationResidency: "w", kube.AnnotationResidencyReached: "r"}, map[string]string{kube.AnnotationResidency: "w"}, "u", true},
		"another pod":     {map[string]string{kube.AnnotationResidency: "w"}, map[string]string{kube.AnnotationResidency: "w"}, "v", true},
		"gone":            {map[string]string{kube.AnnotationResidency: "w"}, nil, "u", false},
	} {
		t.Run(name, func(t *testing.T) {
			s, client, ctx := apiServer(t)
			pods := client.CoreV1().Pods("ns")
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: c.uid, ResourceVersion: "1", Annotations: c.now}}
			_, err := pods.Update(ctx, pod, metav1.UpdateOptions{})
			if c.now == nil {
				err = pods.Delete(ctx, "p", metav1.DeleteOptions{})
			}
			if err != nil {
				t.Fatal(err)
			}
			seen := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "0", Annotations: c.seen}}
			if err := s.WriteResidency(ctx, seen, "new"); (err != nil) != c.fails {
				t.Fatalf("%v, want an error: %t", err, c.fails)
			}
			if now, err := pods.Get(ctx, "p", metav1.GetOptions{}); err == nil && (now.Annotations[kube.AnnotationResidencyReached] == "new") == c.fails {
				t.Errorf("annotations are %v", now.Annotations)
			}
		})
	}
}
