package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and the version of the types of this package.
var GroupVersion = schema.GroupVersion{Group: "serving.gshare.dev", Version: "v1alpha1"}

// AddToScheme makes the types known to a scheme, so that clients of an API server can read and write them.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &GPUFunction{}, &GPUFunctionList{}, &FaSTPod{}, &FaSTPodList{}, &SharePolicy{}, &SharePolicyList{},
		&InferencePlan{}, &InferencePlanList{}, &GPUProfile{}, &GPUProfileList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
