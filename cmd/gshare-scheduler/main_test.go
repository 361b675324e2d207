package main

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apiserver/pkg/util/compatibility"

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

// TestFeatures: the scheduler knows the gates of gshare besides those of Kubernetes, and refuses others.
func TestFeatures(t *testing.T) {
	for _, c := range []struct{ gates, want string }{ // in this order: the registry of the process keeps what it could not set
		{"Swap=true,ContextualLogging=true", ""}, {"Swop=true", "unrecognized feature gate: Swop"},
	} {
		t.Run(c.gates, func(t *testing.T) {
			t.Cleanup(compatibility.DefaultComponentGlobalsRegistry.Reset)
			gates, want := c.gates, c.want
			cmd := command()
			if err := cmd.ParseFlags([]string{"--feature-gates=" + gates}); err != nil {
				t.Fatal(err)
			}
			if err := cmd.PersistentPreRunE(cmd, nil); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
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
