package main

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gshare-dev/gshare/test/install/manifest"
)

// TestArguments: the scheduler takes the arguments of the manifests, and serves its page only where they say so.
func TestArguments(t *testing.T) {
	for folder, address := range map[string]string{"manifests": "", "test/install/testdata/web": "127.0.0.1:10260"} {
		cmd := command()
		if err := cmd.ParseFlags(arguments(t, folder)); err != nil {
			t.Errorf("%s: %v", folder, err)
		}
		if got := cmd.Flag("web-address").Value.String(); got != address {
			t.Errorf("%s: the page is served at %q, want %q", folder, got, address)
		}
	}
	if command().ParseFlags([]string{"--web-adress=x"}) == nil {
		t.Error("a flag that the scheduler has not passes")
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
