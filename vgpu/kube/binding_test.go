package kube

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// placedPod returns the pod for which testPlacement was made.
func placedPod() *v1.Pod {
	return withInit(podOf(nil, container("main", "sm=24")), container("setup"), sidecar(container("side", "sm=100")))
}

func TestMakeBinding(t *testing.T) {
	got, err := MakeBinding(placedPod(), "n1", testPlacement())
	want := &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "uid-1",
			Annotations: map[string]string{AnnotationPlacement: golden(t, "placement.json")}},
		Target: v1.ObjectReference{Kind: "Node", Name: "n1"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v, binding (-want +got):\n%s", err, diff)
	}
}

func TestMakeBindingRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		node    string
		spoil   func(*Placement)
		wantErr error
	}{
		"other node":      {"n2", func(*Placement) {}, ErrForeign},
		"other pod":       {"n1", func(p *Placement) { p.UID = "uid-2" }, ErrForeign},
		"other container": {"n1", func(p *Placement) { p.Containers[0].Name = "x" }, ErrForeign},
		"init container":  {"n1", func(p *Placement) { p.Containers[0].Name = "setup" }, ErrForeign},
		"malformed":       {"n1", func(p *Placement) { p.Model = "" }, ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			p := testPlacement()
			tc.spoil(&p)
			if got, err := MakeBinding(placedPod(), tc.node, p); got != nil || !errors.Is(err, tc.wantErr) {
				t.Errorf("MakeBinding = %v, %v, want %v", got, err, tc.wantErr)
			}
		})
	}
}

func TestPlacementOf(t *testing.T) {
	for name, tc := range map[string]struct {
		change      func(*v1.Pod)
		wantPresent bool
		wantErr     error
	}{
		"bound":             {func(p *v1.Pod) { p.Spec.NodeName = "n1" }, true, nil},
		"not bound":         {func(*v1.Pod) {}, true, nil},
		"without a UID":     {func(p *v1.Pod) { p.UID = "" }, true, nil},
		"none":              {func(p *v1.Pod) { p.Annotations = nil }, false, nil},
		"empty":             {func(p *v1.Pod) { p.Annotations[AnnotationPlacement] = "" }, false, nil},
		"malformed":         {func(p *v1.Pod) { p.Annotations[AnnotationPlacement] = "{" }, true, ErrMalformed},
		"other node":        {func(p *v1.Pod) { p.Spec.NodeName = "n2" }, true, ErrForeign},
		"other pod":         {func(p *v1.Pod) { p.UID = "uid-2" }, true, ErrForeign},
		"other container":   {func(p *v1.Pod) { p.Spec.Containers[0].Name = "x" }, true, ErrForeign},
		"sidecar that ends": {func(p *v1.Pod) { p.Spec.InitContainers[1].RestartPolicy = nil }, true, ErrForeign},
	} {
		t.Run(name, func(t *testing.T) {
			pod := placedPod()
			pod.Annotations = map[string]string{AnnotationPlacement: golden(t, "placement.json")}
			tc.change(pod)
			got, present, err := PlacementOf(pod)
			if present != tc.wantPresent || !errors.Is(err, tc.wantErr) {
				t.Fatalf("PlacementOf: present %v, %v", present, err)
			}
			want := Placement{}
			if present && err == nil {
				want = testPlacement()
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("placement (-want +got):\n%s", diff)
			}
		})
	}
}

func BenchmarkPlacementOf(b *testing.B) {
	text, err := EncodePlacement(testPlacement())
	if err != nil {
		b.Fatal(err)
	}
	pod := placedPod()
	pod.Annotations = map[string]string{AnnotationPlacement: text}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := PlacementOf(pod); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRequestOf(b *testing.B) {
	pod := podOf(map[string]string{AnnotationModel: "A100,H200"}, container("main", "sm=24", "mem=8192", "vgpu=1"))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := RequestOf(pod); err != nil {
			b.Fatal(err)
		}
	}
}
