package v1alpha1

import "github.com/gshare-dev/gshare/vgpu/share"

// InTurn reports whether the replicas of the function take turns with those of other functions in holding the memory of their slices. One replica of
// a function is enough.
func (f *GPUFunction) InTurn() bool {
	return f.Spec.Template.Annotations[share.FieldIsolation] == string(share.Swap)
}
