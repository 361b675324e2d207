package main

import (
	"errors"

	"github.com/gshare-dev/gshare/cmd/internal/features"
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// admit returns a function that returns an error for each field of a GPUFunction that needs a feature that is off.
func admit(gates *features.Gates) func(*api.GPUFunction) error {
	return func(f *api.GPUFunction) error {
		var errs []error
		if f.Spec.Scaling.KeepWarm != "" {
			errs = append(errs, gates.Refuse(features.Parking, "spec.scaling.keepWarm"))
		}
		if f.Spec.Pipeline != nil {
			errs = append(errs, gates.Refuse(features.Pipelines, "spec.pipeline"))
		}
		if f.InTurn() {
			errs = append(errs, gates.Refuse(features.Swap, "annotation "+kube.AnnotationIsolation+" of spec.template"))
		}
		return errors.Join(errs...)
	}
}
