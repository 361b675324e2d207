package live

import (
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	kubetest "k8s.io/client-go/testing"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestErrors(t *testing.T) {
	if _, err := read(t, Options{}, node(t, "n", nil), pod(t, "p", "n", "cpu", "1")); !errors.Is(err, ErrNoGPUs) {
		t.Errorf("a cluster without GPUs: %v", err)
	}
	for _, what := range []string{"nodes", "pods"} {
		client := fake.NewClientset(node(t, "n", a100, "nvidia.com/gpu", "4"))
		client.PrependReactor("list", what, func(kubetest.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: what}, "", errors.New("no"))
		})
		_, err := Read(t.Context(), client, Options{GPUMemory: 1})
		if !apierrors.IsForbidden(err) || !strings.HasPrefix(err.Error(), "list "+what+": ") || !strings.Contains(err.Error(), "verb list") {
			t.Errorf("forbidden to list %s: %v", what, err)
		}
	}
}

// Two shares on one GPU of gshare's hold one GPU together, not two.
func TestHeldByPlacements(t *testing.T) {
	n := gshareNode(t, "n")
	objects := []runtime.Object{n}
	for i, name := range []string{"a", "b", "c"} {
		p := pod(t, name, "n", "gshare/sm", "50", "gshare/quota", "100", "gshare/mem", "1024", "gshare/vgpu", "1")
		p.UID = types.UID(name)
		half := share.Share{SMRequest: 500, SMLimit: 500, QuotaRequest: 1000, QuotaLimit: 1000, Memory: 1024 * share.MiB}
		text, err := kube.EncodePlacement(kube.Placement{Node: "n", UID: p.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
			Name: "main", VGPUs: []kube.PlacedVGPU{{Slice: []string{"GPU-n-0", "GPU-n-1"}[i/2], Class: share.MPS, Priority: share.BestEffort, Share: half}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		p.Annotations = map[string]string{kube.AnnotationPlacement: text}
		objects = append(objects, p)
	}
	c := mustRead(t, Options{}, objects...)
	var held []int64
	for _, p := range c.Pods {
		held = append(held, int64(p.Held))
	}
	if len(held) != 3 || held[0] != 500 || held[1] != 500 || held[2] != 1000 {
		t.Errorf("held %v, want 500 500 1000", held)
	}
}
