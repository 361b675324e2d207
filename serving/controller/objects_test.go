package controller

import (
	"testing"

	"k8s.io/client-go/tools/cache"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// TestFunctionObjects: the objects that exist are those in the cache, even after the end of a function whose deletion was
// not observed.
func TestFunctionObjects(t *testing.T) {
	named := func(name, version string) *api.GPUFunction {
		f := &api.GPUFunction{}
		f.Namespace, f.Name, f.ResourceVersion = "ml", name, version
		return f
	}
	o := &functionObjects{}
	h := o.handler()
	h.OnAdd(named("a", "1"), true)
	h.OnAdd(named("b", "2"), true)
	h.OnAdd(named("c", "3"), false)
	before := o.all()
	h.OnUpdate(named("a", "1"), named("a", "4"))
	h.OnDelete(named("b", "2"))
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "ml/c", Obj: named("c", "3")})
	if all := o.all(); len(all) != 1 || all[gateway.FunctionName{Namespace: "ml", Name: "a"}].ResourceVersion != "4" {
		t.Errorf("%v, want the second version of a alone", all)
	}
	if len(before) != 3 || before[gateway.FunctionName{Namespace: "ml", Name: "a"}].ResourceVersion != "1" {
		t.Errorf("%v has changed since it was returned", before)
	}
}
