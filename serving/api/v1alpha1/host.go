package v1alpha1

import "k8s.io/apimachinery/pkg/api/equality"

// MayServe reports whether the replicas of the function can serve the requests of another one in its namespace whose status says so: both have the
// same template and protocol, and neither is scaled by another autoscaler. A function that is itself served by another serves nobody.
func (f *GPUFunction) MayServe(other *GPUFunction) bool {
	return f.Namespace == other.Namespace && f.Name != other.Name && f.Status.ServedBy == "" && f.DeletionTimestamp == nil &&
		f.GPUs() == 1 && other.GPUs() == 1 && f.Spec.Protocol == other.Spec.Protocol && !f.External() && !other.External() && equality.Semantic.DeepEqual(f.Spec.Template, other.Spec.Template)
}
