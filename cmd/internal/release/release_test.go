package release

import (
	"context"
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func TestVersion(t *testing.T) {
	if Version() == "" {
		t.Error("a build without a version says nothing")
	}
	version = "v0.2.0"
	defer func() { version = "" }()
	if got := Version(); got != "v0.2.0" {
		t.Errorf("a release says %s", got)
	}
}

func TestAnnounce(t *testing.T) {
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "gshare-system", Name: "a", Annotations: map[string]string{"else": "x"}}}
	client := fake.NewClientset(pod)
	t.Setenv("POD_NAMESPACE", "gshare-system")
	t.Setenv("POD_NAME", "a")
	if err := Announce(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Pods("gshare-system").Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || Of(got) != Version() || got.Annotations["else"] != "x" {
		t.Errorf("%v: %v", err, got.Annotations)
	}
	if Of(pod) != "" {
		t.Error("a pod that says nothing has a version")
	}
}

// What will not change is not tried again; without a name there is no pod.
func TestAnnounceEnds(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for name, c := range map[string]struct {
		pod    string
		answer error
		asked  int
		ends   bool // with an error
	}{
		"no pod":    {"", nil, 0, false},
		"forbidden": {"a", apierrors.NewForbidden(pods, "a", errors.New("no right")), 1, true},
		"refused":   {"a", apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "a", nil), 1, true},
		"gone":      {"a", apierrors.NewNotFound(pods, "a"), 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("POD_NAMESPACE", "gshare-system")
			t.Setenv("POD_NAME", c.pod)
			client, asked := fake.NewClientset(), 0
			client.PrependReactor("patch", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
				asked++
				if a.GetSubresource() != "status" {
					t.Errorf("patched %q", a.GetSubresource())
				}
				return true, nil, c.answer
			})
			if err := Announce(t.Context(), client, "status"); (err != nil) != c.ends || asked != c.asked {
				t.Errorf("%v after %d tries", err, asked)
			}
		})
	}
}

// An API server that is away is asked again, until the context ends.
func TestAnnounceWaits(t *testing.T) {
	t.Setenv("POD_NAMESPACE", "gshare-system")
	t.Setenv("POD_NAME", "a")
	ctx, cancel := context.WithCancel(t.Context())
	client := fake.NewClientset()
	client.PrependReactor("patch", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		cancel()
		return true, nil, apierrors.NewServiceUnavailable("away")
	})
	if err := Announce(ctx, client); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
