// Package tracker holds the objects of fake API servers in tests.
package tracker

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/testing"
)

// New returns a store of objects for the fake client of controller-runtime. Unlike the store that the fake client makes by itself, it does not track
// which client set which field, for which each write takes several times as long. So clients cannot apply objects on the server's side, which
// gshare does not.
func New(scheme *runtime.Scheme) testing.ObjectTracker {
	return testing.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())
}
