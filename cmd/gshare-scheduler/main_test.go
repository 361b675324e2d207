package main

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gshare-dev/gshare/test/install/manifest"
)

// TestArguments: the scheduler accepts the arguments of the manifests and refuses unknown flags.
func TestArguments(t *testing.T) {
	if err := command().ParseFlags(arguments(t, "manifests")); err != nil {
		t.Error(err)
	}
	if command().ParseFlags([]string{"--web-address=x"}) == nil {
		t.Error("an unknown flag is accepted")
	}
}

func arguments(t *testing.T, folder string) []string {
	t.Helper()
	objects, err := manifest.Build("../..", folder)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
	containers, _, err := unstructured.NestedSlice(objects[i].Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	if err != nil || len(args) < 3 {
		t.Fatalf("%v, %v", args, err)
	}
	return args
}
