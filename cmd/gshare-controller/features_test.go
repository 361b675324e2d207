package main

import (
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/features"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// TestAdmit: a function that needs a feature that is off is refused with the field and the flag, and a function that needs none is admitted.
func TestAdmit(t *testing.T) {
	for name, test := range map[string]struct {
		change           func(f *api.GPUFunction)
		feature, refused string
	}{
		"none":     {func(*api.GPUFunction) {}, "Swap", ""},
		"parking":  {func(f *api.GPUFunction) { f.Spec.Scaling.KeepWarm = "10m" }, "Parking", "spec.scaling.keepWarm"},
		"pipeline": {func(f *api.GPUFunction) { f.Spec.Pipeline = &api.Pipeline{} }, "Pipelines", "spec.pipeline"},
		"turns": {func(f *api.GPUFunction) {
			f.Spec.Template.Annotations = map[string]string{kube.AnnotationIsolation: "swap"}
		}, "Swap",
			"annotation gshare.dev/isolation of spec.template"},
		"another class": {func(f *api.GPUFunction) {
			f.Spec.Template.Annotations = map[string]string{kube.AnnotationIsolation: "mps"}
		}, "Swap", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, gates := &api.GPUFunction{}, features.New("gshare-controller")
			test.change(f)
			want := test.refused + ": the feature " + test.feature + " is Alpha and off: start gshare-controller with --feature-gates=" + test.feature + "=true"
			if err := admit(gates)(f); (err != nil) != (test.refused != "") || err != nil && err.Error() != want {
				t.Errorf("off: %v, want %s", err, want)
			}
			if err := gates.Set(test.feature + "=true"); err != nil {
				t.Fatal(err)
			}
			if err := admit(gates)(f); err != nil {
				t.Errorf("on: %v", err)
			}
		})
	}
}

// TestUnknownFeature: an unknown gate is a usage error.
func TestUnknownFeature(t *testing.T) {
	cmd := command()
	cmd.SetArgs([]string{"--feature-gates=Park=true"})
	if err := cli.Execute(t.Context(), cmd); err == nil || cli.ExitCode(err) != 2 || !strings.Contains(err.Error(), "unrecognized feature gate: Park") {
		t.Errorf("%v", err)
	}
}
