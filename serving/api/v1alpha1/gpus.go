package v1alpha1

import "github.com/gshare-dev/gshare/vgpu/share"

// GPUs returns the number of GPUs of each replica.
func (f *GPUFunction) GPUs() int64 { return f.Spec.Resources.Share.Count() }

// Count returns the number of GPUs of which it is a share. That is 1 for no share.
func (s *Share) Count() int64 {
	if s == nil {
		return 1
	}
	return max(1, s.GPUs)
}

// validateGPUs returns an error for what replicas with several GPUs cannot do.
func (f *GPUFunction) validateGPUs() error {
	if f.GPUs() == 1 {
		return nil
	}
	if f.Spec.Scaling.KeepWarm != "" {
		return share.Invalid("spec.scaling.keepWarm", "want none: replicas with %d GPUs cannot be parked", f.GPUs())
	}
	switch class := f.Spec.Template.Annotations[share.FieldIsolation]; share.Isolation(class) {
	case share.AnyIsolation, share.Exclusive:
		return nil
	default:
		return share.Invalid("spec.template.metadata.annotations", "want no %s: %.64s, as replicas with %d GPUs have them to themselves", share.FieldIsolation, class, f.GPUs())
	}
}
